"""The flow in this process, against a real Prefect server, with the echo engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prefect.client.schemas.objects import FlowRun

from batchjobs.errors import OutputError, Refused
from batchjobs.job import prepare
from batchjobs.supervision import prepared as prepared_module
from batchjobs.supervision.limits import refuse_beyond
from batchjobs.supervision.progress import Progress, Silent
from flows import batch_inference as flow_module
from flows.batch_inference import batch_inference, exit_code_of, run_in_process
from flows.steps import drained_in_time
from schemas.figures import Estimate, Interval
from schemas.job import JobSpec
from schemas.summary import Summary
from tests.conftest import MakeJob, text_table
from tests.flows.seen import artifacts_of, data_of, log_of, run_named, tasks_of

pytestmark = [pytest.mark.prefect, pytest.mark.usefixtures("prefect_api")]


class Watcher:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.seen: list[Progress] = []
        self.lines: list[str] = []

    def progress(self, now: Progress) -> None:
        self.seen.append(now)

    def log(self, line: str) -> None:
        self.lines.append(line)


def lock_is_free(job: JobSpec) -> bool:
    prepared = prepare(job)  # raises after some seconds if it is not
    prepared.lock.release()
    return True


def state_of(job: JobSpec) -> tuple[FlowRun, str, int]:
    run = run_named(job.name)
    assert run.state is not None
    return run, str(run.state.name), exit_code_of(run.state)


def test_a_job_is_one_flow_run_with_three_tasks_and_two_artifacts(make_job: MakeJob) -> None:
    job = make_job(text_table(20), name="Docs: all", cost={"usd_per_hour": 2.5}, engine={"echo": {"tokens_per_s": 80}})
    watcher = Watcher()
    summary = run_in_process(job, False, watcher)
    run, state, exit_code = state_of(job)
    assert (summary.state, state, exit_code) == ("completed", "Completed", 0)
    assert run.state is not None
    assert run.state.message == summary.message
    assert sorted(tasks_of(run)) == ["plan", "run", "summarise"]

    artifacts = artifacts_of(run)
    progress, told = artifacts["progress"], artifacts["markdown"]
    assert (progress.key, progress.data) == (None, 100)
    assert progress.description is not None
    for shown in ("20 of 20 rows", "tokens/s", "$0.0", "0 errors", "attempt 1", "5 of 5 shards committed"):
        assert shown in progress.description
    assert told.key == "docs-all-summary"
    assert str(told.description).startswith("completed · 20 of 20 rows ok · 0 errors · ")
    assert "| ok | 20 |" in str(told.data)
    report = Path(job.output.path) / "_batchjobs" / "report.html"
    assert report.is_file()
    assert f"Report: `{report}`" in str(told.data)
    assert watcher.seen[-1].rows_done == 20
    assert any(f"/flow-run/{run.id}" in line for line in watcher.lines)


def test_tables_and_a_link_tell_of_attempts_shards_and_the_report(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHJOBS_REPORT_URL", "https://files.example/")
    echo = {"error_rows": [17]}
    job = make_job(text_table(20), name="Tables", engine={"echo": echo}, run={"max_error_rate": 0.5})
    run_in_process(job, False, Silent())
    shown = data_of(run_named("Tables"))
    (attempt,), shards = json.loads(shown["tables-attempts"]), json.loads(shown["tables-shards"])
    assert (attempt["replica"], attempt["attempt"], attempt["cause"], attempt["rows"]) == (0, 1, "done", 20)
    assert [(shard["shard"], shard["errors"]) for shard in shards if shard["errors"]] == [(4, 1)]
    assert shards[0]["shard"] == 4
    assert {shard["part"] for shard in shards} == {f"part-{number:06d}.parquet" for number in range(5)}
    assert sum(shard["rows"] for shard in shards) == 20
    report = Path(job.output.path) / "_batchjobs" / "report.html"
    assert shown["tables-report"] == f"[report.html](https://files.example{report})"


def test_a_finished_job_ends_at_once_and_repeats_its_summary(make_job: MakeJob) -> None:
    job = make_job(name="twice")
    first = run_in_process(job, False, Silent())
    again = run_in_process(job, False, Silent())
    assert again == first
    run, state, _ = state_of(job)
    assert state == "Completed"
    assert "Nothing to do" in str(tasks_of(run)["run"].state)
    assert set(artifacts_of(run)) == {"markdown"}


def test_too_many_errors_end_as_partial(make_job: MakeJob) -> None:
    job = make_job(name="partial", engine={"echo": {"error_rows": [1, 2]}})
    summary = run_in_process(job, False, Silent())
    run, state, exit_code = state_of(job)
    assert (summary.exit_code, state, exit_code) == (3, "Partial", 3)
    assert run.state is not None
    assert run.state.message == summary.message


def test_a_refused_job_says_why_without_a_traceback_and_leaves_no_lock(make_job: MakeJob) -> None:
    run_in_process(make_job(name="first"), False, Silent())
    job = make_job(name="refused", sampling={"max_tokens": 5})
    with pytest.raises(OutputError, match=r"sampling\.max_tokens: was 100, now 5"):
        run_in_process(job, False, Silent())
    run, state, exit_code = state_of(job)
    assert (state, exit_code) == ("Refused", 2)
    assert list(tasks_of(run, count=1)) == ["plan"]
    lines = [line.message for line in log_of(run)]
    assert any("was 100, now 5" in line for line in lines)
    assert not any("Traceback" in line for line in lines)
    assert lock_is_free(make_job(name="first"))


def test_a_job_that_does_not_fit_its_deadline_is_refused_and_begun_with_force(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreseen = Estimate(seconds=Interval(low=7200, expected=7200, high=7200), basis="Measured.")
    monkeypatch.setattr(
        prepared_module, "refuse_beyond", lambda limits, _, force: refuse_beyond(limits, foreseen, force)
    )
    job = make_job(name="late", run={"deadline": "1h"})
    with pytest.raises(Refused, match="The job needs 2 h 00 min"):
        run_in_process(job, False, Silent())
    run, state, exit_code = state_of(job)
    assert (state, exit_code) == ("Refused", 2)
    assert "--force" in str(run.state.message if run.state else "")
    assert run_in_process(job, False, Silent(), force=True).state == "completed"


def test_a_broken_engine_ends_as_failed_with_its_log_lines_under_the_flow_run(make_job: MakeJob) -> None:
    job = make_job(name="failed", engine={"echo": {"fail_at_start": "no such device"}}, run={"max_restarts": 1})
    watcher = Watcher()
    summary = run_in_process(job, False, watcher)
    run, state, exit_code = state_of(job)
    assert (summary.state, state, exit_code) == ("failed", "Failed", 1)
    assert tasks_of(run)["run"].state_name == "Failed"
    assert any("batchjobs.replica" in line.message and line.level == 40 for line in log_of(run))
    assert any("batchjobs.replica" in line for line in watcher.lines)
    assert lock_is_free(job)


def test_log_lines_of_batchjobs_itself_are_in_the_flow_runs_log(make_job: MakeJob) -> None:
    job = make_job(name="remedies", engine={"echo": {"raise_rows": [9]}})
    run_in_process(job, False, Silent())
    run, _, _ = state_of(job)
    assert any("Attempt 1 ended" in line.message and line.level == 30 for line in log_of(run))


def test_a_bug_is_raised_as_it_is_and_leaves_no_lock(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Summary:
        raise ZeroDivisionError("a bug")

    job = make_job(name="bug")
    with monkeypatch.context() as patched:
        patched.setattr("batchjobs.job.finish", broken)
        with pytest.raises(ZeroDivisionError, match="a bug"):
            run_in_process(job, False, Silent())
    run, state, exit_code = state_of(job)
    assert (state, exit_code) == ("Failed", 1)
    assert any("Traceback" in line.message for line in log_of(run))
    assert lock_is_free(job)


def test_python_callers_get_the_summary_or_the_error(make_job: MakeJob) -> None:
    assert batch_inference(make_job(name="called")).rows.ok == 10
    with pytest.raises(OutputError):
        batch_inference(make_job(name="called", sampling={"max_tokens": 5}))


def test_prefect_stores_references_never_secrets(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_job().input.path
    monkeypatch.setenv("SECRET_FOLDER", str(folder))
    job = make_job(name="references", input={"path": "${SECRET_FOLDER}"})
    run_in_process(job, False, Silent())
    run, state, _ = state_of(job)
    assert state == "Completed"
    assert run.parameters["job"]["input"]["path"] == "${SECRET_FOLDER}"
    assert str(folder) not in json.dumps(run.parameters)


def test_the_ui_can_draw_a_form_of_the_job_spec() -> None:
    schema = batch_inference.parameters.model_dump()
    assert schema["required"] == ["job"]
    assert set(schema["definitions"]["JobSpec"]["properties"]) == set(JobSpec.model_fields)
    assert schema["definitions"]["SamplingSpec"]["properties"]["max_tokens"]["description"]
    assert "job file" in schema["properties"]["job"]["description"]


def test_without_an_api_that_takes_the_run_the_job_runs_all_the_same(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(flow_module, "batch_inference", refuse)
    watcher = Watcher()
    assert run_in_process(make_job(), False, watcher).state == "completed"
    assert any("runs without it. no route" in line for line in watcher.lines)


def test_a_drain_ends_before_prefect_kills(make_job: MakeJob) -> None:
    assert drained_in_time(make_job(run={"drain_seconds": 60})).run.drain_seconds == 20
    assert drained_in_time(make_job(run={"drain_seconds": 5})).run.drain_seconds == 5
