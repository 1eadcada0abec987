"""Engines that die, hang, run out of memory or never start: a run survives what can be survived."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchjobs.reports.text import text
from batchjobs.status import describe, read_status
from schemas.job import JobSpec
from schemas.summary import Summary
from tests.conftest import MakeJob, read_output, run_here, text_table


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def quarantined(job: JobSpec) -> list[int]:
    return [r["row"] for r in read_output(job).to_pylist() if r["error_code"] == "engine_crash"]


def causes(summary: Summary) -> list[str | None]:
    return [attempt.cause for attempt in summary.attempts]


@pytest.mark.parametrize("kind", ["raise_rows", "die_rows"])
def test_two_rows_on_which_the_engine_dies_are_both_found_and_all_others_finish(make_job: MakeJob, kind: str) -> None:
    job = make_job(
        text_table(60),
        engine={"max_num_seqs": 16, "echo": {kind: [7, 21]}},
        run={"shard_rows": 20, "max_error_rate": 0.1},
    )
    summary = run_here(job)
    assert (summary.state, summary.rows.ok, summary.errors) == ("completed", 58, {"engine_crash": 2})
    assert quarantined(job) == [7, 21]
    deaths = causes(summary).count("engine_died")
    assert deaths <= 1 + 4 * 2
    words = read_output(job)["error"].to_pylist()[7]
    assert ("told to raise at row 7" if kind == "raise_rows" else "SIGKILL") in words


def test_a_row_that_hangs_the_engine_is_found(make_job: MakeJob) -> None:
    job = make_job(
        text_table(6), engine={"echo": {"hang_rows": [3]}}, run={"stall_seconds": 0.2, "max_error_rate": 0.5}
    )
    summary = run_here(job)
    assert (summary.state, quarantined(job)) == ("completed", [3])
    assert set(causes(summary)) == {"hang", "done"}


def test_quarantine_survives_a_run_that_is_given_up(make_job: MakeJob) -> None:
    job = make_job(
        text_table(12), engine={"echo": {"raise_rows": [1, 9]}}, run={"max_restarts": 3, "max_error_rate": 1}
    )
    run_here(job)
    again = make_job(text_table(12), engine={"echo": {"raise_rows": [1, 9]}}, run={"max_error_rate": 1})
    summary = run_here(again)
    assert (summary.state, quarantined(again)) == ("completed", [1, 9])
    shown = describe(read_status(again.output.path))
    assert "attempt 1  engine_died" in shown
    assert "quarantined  row 1: RuntimeError: echo was told to raise at row 1" in shown


def test_an_engine_that_dies_on_every_row_is_a_broken_engine(make_job: MakeJob) -> None:
    job = make_job(text_table(12), engine={"echo": {"raise_rows": list(range(12))}}, run={"max_restarts": 20})
    summary = run_here(job)
    assert summary.state == "failed"
    assert "so it is the engine" in summary.message
    assert summary.rows.total == 0
    assert all(not attempt.quarantined for attempt in summary.attempts)


def test_out_of_memory_lowers_one_setting_at_a_time_and_the_next_job_starts_there(
    make_job: MakeJob, tmp_path: Path
) -> None:
    engine = {"max_num_seqs": 16, "echo": {"oom_above_seqs": 4}}
    summary = run_here(make_job(text_table(40), engine=engine))
    assert summary.state == "completed"
    assert causes(summary) == ["engine_oom", "engine_oom", "done"]
    assert [a.remedy for a in summary.attempts] == ["max_num_seqs 16 -> 8", "max_num_seqs 8 -> 4", None]
    assert summary.engine.max_num_seqs == 4
    assert summary.errors == {}
    assert "next: max_num_seqs 16 -> 8" in text(summary)
    tomorrow = run_here(make_job(text_table(40), engine=engine, output={"path": str(tmp_path / "tomorrow")}))
    assert (causes(tomorrow), tomorrow.engine.max_num_seqs) == (["done"], 4)


def test_after_some_good_runs_a_bigger_setting_is_tried_again(make_job: MakeJob, tmp_path: Path) -> None:
    def night(number: int, oom_above: int) -> Summary:
        engine = {"max_num_seqs": 16, "echo": {"oom_above_seqs": oom_above}}
        return run_here(make_job(text_table(40), engine=engine, output={"path": str(tmp_path / f"night{number}")}))

    sizes = [night(number, 4).engine.max_num_seqs for number in range(4)]
    assert sizes == [4, 4, 4, 4]
    trial = night(4, 4)
    assert (trial.engine.max_num_seqs, causes(trial)) == (4, ["engine_oom", "done"])
    profile = json.loads(next((tmp_path / "state/batchjobs/profiles").iterdir()).read_text())
    assert (profile["settings"], profile["good_runs"], profile["patience"]) == ({"max_num_seqs": 4}, 0, 6)


def test_memory_that_no_setting_frees_fails_with_the_whole_story(make_job: MakeJob) -> None:
    engine = {"max_num_seqs": 2, "echo": {"fail_at_start": "No available memory for the cache blocks."}}
    summary = run_here(make_job(engine=engine))
    assert summary.state == "failed"
    assert "no_kv_room" in summary.message
    assert "no setting left to try" in summary.message


def test_a_start_that_never_ends_is_ended(make_job: MakeJob) -> None:
    summary = run_here(make_job(engine={"echo": {"start_s": 600}}, run={"start_seconds": 1.5}))
    assert summary.state == "failed"
    assert causes(summary) == ["start_timeout", "start_timeout"]
    assert "was not ready after" in summary.message


def test_a_start_that_fails_is_tried_three_times(make_job: MakeJob) -> None:
    summary = run_here(make_job(engine={"echo": {"fail_at_start": "no such device"}}))
    assert causes(summary) == ["start_failed"] * 3
    assert summary.exit_code == 1
