"""Thresholds of `baseline` against the figures of two runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from batchjobs.accounts.baseline import TOKENS_PER_S, USD_PER_1K_ROWS, breaches, judged
from schemas.job import BaselineSpec
from schemas.summary import Change, Previous, Summary
from tests.reports.samples import full_summary


def held_against(figure: str, before: float, now: float, is_small: bool = False) -> Summary:
    change = Change(figure=figure, unit="usd" if figure == USD_PER_1K_ROWS else "per s", before=before, now=now)
    ended = datetime(2026, 11, 27, 4, tzinfo=UTC)
    previous = Previous(ended=ended, same_settings=True, settings=[], is_small=is_small, changes=[change])
    return full_summary(state="completed", exit_code=0, previous=previous)


@pytest.mark.parametrize(
    ("figure", "before", "now", "threshold"),
    [(TOKENS_PER_S, 1000.0, 790.0, "max_slowdown"), (USD_PER_1K_ROWS, 0.10, 0.13, "max_cost_increase")],
)
def test_a_night_that_is_slower_or_dearer_than_allowed_is_held_back(
    figure: str, before: float, now: float, threshold: str
) -> None:
    spec = BaselineSpec.model_validate({threshold: 0.2, "on_breach": "partial"})
    found = judged(held_against(figure, before, now), spec)
    assert (found.state, found.exit_code) == ("partial", 3)
    assert f"{figure} went from {before:,.4g} to {now:,.4g} (baseline.{threshold} 0.2)" in found.message
    assert breaches(judged(held_against(figure, before, now, is_small=True), spec).previous) == []


@pytest.mark.parametrize(
    ("figure", "before", "now", "threshold"),
    [(TOKENS_PER_S, 1000.0, 1500.0, "max_slowdown"), (USD_PER_1K_ROWS, 0.10, 0.05, "max_cost_increase")],
)
def test_a_night_that_is_faster_or_cheaper_is_no_breach(figure: str, before: float, now: float, threshold: str) -> None:
    spec = BaselineSpec.model_validate({threshold: 0.2, "on_breach": "partial"})
    assert judged(held_against(figure, before, now), spec).state == "completed"
