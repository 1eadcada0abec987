"""A bounded chaos run; `make chaos` is the long one."""

from __future__ import annotations

from tests.chaos import Chaos


def test_six_hits_on_any_process_lose_no_row_and_double_none() -> None:
    report = Chaos(seed=7, kills=6).go()
    assert sum(report.hits.values()) == 6
    assert report.redone <= report.redone_allowed
