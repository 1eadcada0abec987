"""A run held against the one before it of the same name, and what the thresholds of `baseline` make of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.job import JobSpec
from schemas.summary import Change, Summary
from tests.conftest import MakeJob, read_output, run_here, snapshot, text_table

Night = Any


@pytest.fixture
def night(make_job: MakeJob, tmp_path: Path) -> Night:
    """A job of one night: its own output, the state store of all nights."""

    def job_of(number: int, **sections: Any) -> JobSpec:
        output = {"path": str(tmp_path / f"night-{number}")}
        run = {"state": str(tmp_path / "state"), "shard_rows": 10, "max_error_rate": 1.0}
        return make_job(text_table(20, first=100 * number), output=output, run=run, **sections)

    return job_of


def changes(summary: Summary) -> dict[str, Change]:
    assert summary.previous is not None
    return {change.figure: change for change in summary.previous.changes}


def echo(**behaviour: Any) -> dict[str, Any]:
    return {"kind": "echo", "echo": behaviour}


def test_a_first_run_has_nothing_before_it(night: Night) -> None:
    assert run_here(night(1)).previous is None


def test_a_run_is_compared_with_the_newest_one_that_generated_rows(night: Night) -> None:
    run_here(night(1))
    second = run_here(night(2, engine=echo(error_rows=[0, 1, 2, 3, 4])))
    third = run_here(night(3))
    failed = changes(second)["failed rows"]
    assert (failed.before, failed.now, failed.relative) == (0.0, 0.25, None)
    assert changes(third)["failed rows"].before == 0.25
    assert third.previous is not None
    assert third.previous.is_small
    assert not third.previous.same_settings
    assert third.previous.settings == ["engine.echo.error_rows: [0, 1, 2, 3, 4] -> not set"]


def test_the_same_settings_on_other_rows_are_the_same_settings(night: Night) -> None:
    run_here(night(1))
    second = run_here(night(2))
    assert second.previous is not None
    assert (second.previous.same_settings, second.previous.settings) == (True, [])


def test_a_breach_is_only_said_by_default(night: Night) -> None:
    run_here(night(1))
    second = run_here(night(2, engine=echo(answer=" "), baseline={"max_empty_increase": 0.1}))
    assert (second.state, second.exit_code) == ("completed", 0)
    assert changes(second)["empty answers"].breach in second.message
    assert "empty answers went from 0.0% to 100.0% (baseline.max_empty_increase 0.1)" in second.message


def test_a_breach_can_hold_complete_results_back(night: Night) -> None:
    strict = {"max_length_shift": 0.5, "on_breach": "partial"}
    run_here(night(1))
    long = night(2, engine=echo(answer="a much longer answer than last night's"), baseline=strict)
    second = run_here(long)
    assert (second.state, second.exit_code) == ("partial", 3)
    assert "mean output tokens went from" in second.message
    assert read_output(long).num_rows == 20
    assert not (Path(long.output.path) / "_SUCCESS").exists()


def test_a_run_that_was_held_back_says_so_again_and_changes_nothing_until_the_threshold_is_raised(night: Night) -> None:
    run_here(night(1))

    def of(limit: float) -> JobSpec:
        longer = echo(answer="a much longer answer than last night's")
        return night(2, engine=longer, baseline={"max_length_shift": limit, "on_breach": "partial"})

    first = run_here(of(0.5))
    before = snapshot(of(0.5).output.path)
    assert run_here(of(0.5)) == first
    assert snapshot(of(0.5).output.path) == before
    accepted = run_here(of(1000.0))
    assert (accepted.state, accepted.rows.generated, accepted.rows.reused) == ("completed", 0, 20)
    assert (Path(of(0.5).output.path) / "_SUCCESS").exists()


def test_speed_is_not_judged_by_a_run_of_a_moment(night: Night) -> None:
    run_here(night(1))
    slow = run_here(night(2, engine=echo(tokens_per_s=200.0), baseline={"max_slowdown": 0.1, "on_breach": "partial"}))
    speed = changes(slow)["total tokens/s"]
    assert speed.relative is not None
    assert speed.relative < -0.1
    assert (slow.state, speed.breach) == ("completed", None)
