"""A run held against the one before it of the same name, and what the thresholds of `baseline` make of that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from batchjobs.comparison.text import against
from batchjobs.preview import preview
from batchjobs.reports.text import text
from batchjobs.supervision.progress import Silent
from schemas.job import JobSpec
from schemas.summary import Change, Summary
from tests.conftest import MakeJob, read_output, run_here, snapshot, text_table
from tests.one_process import in_one_process

Night = Any


@pytest.fixture(autouse=True)
def _in_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_one_process(monkeypatch, tmp_path / "state")


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


def test_a_dated_run_is_held_against_the_date_before_its_own_whenever_that_was_run(night: Night) -> None:
    ran = {day: run_here(night(n, date=day)) for n, day in enumerate(("2026-11-28", "2026-11-29", "2026-11-02"))}
    ran["2026-11-03"] = run_here(night(3, date="2026-11-03"))  # a backfill, and then the next night
    ran["2026-11-30"] = run_here(night(4, date="2026-11-30"))
    before = {day: summary.previous.date if summary.previous else None for day, summary in ran.items()}
    assert before == {
        "2026-11-28": None, "2026-11-29": "2026-11-28", "2026-11-02": None, "2026-11-03": "2026-11-02",
        "2026-11-30": "2026-11-29",
    }  # fmt: skip
    tonight = ran["2026-11-30"]
    assert text(tonight).startswith("test for 2026-11-30: completed")
    assert re.search(r"Against the run before\n +date +2026-11-29\n", text(tonight))
    assert tonight.previous is not None
    assert against(tonight.previous) == "Against 2026-11-29: failed rows 0.0% -> 0.0%."


def test_the_first_dated_run_is_held_against_the_newest_without_a_date(night: Night) -> None:
    run_here(night(1))
    dated = run_here(night(2, date="2026-11-28"))
    assert dated.previous is not None
    assert dated.previous.date is None
    assert run_here(night(3)).previous is not None


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
    assert not Path(long.output.path, "_SUCCESS").exists()


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
    assert first.previous is not None
    assert changes(accepted)["mean output tokens"] == changes(first)["mean output tokens"].model_copy(
        update={"breach": None}
    )  # what it was held against is not forgotten
    assert Path(of(0.5).output.path, "_SUCCESS").exists()


def test_speed_is_not_judged_by_a_run_of_a_moment(night: Night) -> None:
    run_here(night(1))
    slow = run_here(night(2, engine=echo(tokens_per_s=200.0), baseline={"max_slowdown": 0.1, "on_breach": "partial"}))
    speed = changes(slow)["total tokens/s"]
    assert speed.relative is not None
    assert speed.relative < -0.1
    assert (slow.state, speed.breach) == ("completed", None)


def test_results_of_a_run_that_was_killed_at_its_very_end_are_judged_all_the_same(night: Night) -> None:
    run_here(night(1))
    ill = night(2, engine=echo(answer=" "), baseline={"max_empty_increase": 0.1, "on_breach": "partial"})
    run_here(ill)
    Path(ill.output.path, "_batchjobs", "summary.json").unlink()
    again = run_here(ill)
    assert (again.state, again.rows.generated) == ("partial", 0)
    assert changes(again)["empty answers"].now == 1
    assert changes(again)["total tokens/s"].now is None


def test_a_run_that_goes_on_with_an_output_is_not_compared_with_its_own_beginning(night: Night) -> None:
    first = run_here(night(1))
    job = night(2, engine=echo(error_rows=[0, 1]))
    run_here(job)
    Path(job.output.path, "part-000001.parquet").unlink()
    gone_on = run_here(job)
    assert gone_on.rows.generated == 10
    assert gone_on.previous is not None
    assert gone_on.previous.ended > max(attempt.ended for attempt in first.attempts if attempt.ended is not None)
    assert changes(gone_on)["failed rows"].before == 0.0


def test_a_look_at_a_few_rows_is_no_night(night: Night) -> None:
    run_here(night(1))
    strict = {"on_breach": "partial", "max_empty_increase": 0}
    shown = preview(night(2, engine=echo(answer=" "), baseline=strict), 2, Silent())
    assert len(shown) == 2
    assert changes(run_here(night(3)))["empty answers"].before == 0


def test_the_summary_for_people_shows_both_nights(night: Night) -> None:
    run_here(night(1))
    shown = text(run_here(night(2, engine=echo(answer="no"), baseline={"max_length_shift": 0.1})))
    assert "Against the run before" in shown
    assert "8.0 -> 2.0 (-75.0%). mean output tokens went from 8 to 2 (baseline.max_length_shift 0.1)" in shown
    assert "generated too little" in shown
    assert "engine.echo.answer: {prompt} -> no" in shown
