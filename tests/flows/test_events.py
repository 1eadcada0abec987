"""What the Prefect server is told of a job that has ended, and what that starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import FlowRun

from batchjobs.errors import OutputError
from batchjobs.supervision.progress import Silent
from flows import events
from flows.batch_inference import run_in_process
from schemas.job import JobSpec
from tests.conftest import MakeJob, text_table
from tests.flows.seen import log_of, run_named
from tests.flows.server import worker
from tests.waiting import eventually

pytestmark = [pytest.mark.prefect, pytest.mark.usefixtures("prefect_api")]


def told(job: JobSpec, count: int = 1) -> list[dict[str, Any]]:
    """The events that the server has of a job, the newest first."""
    mine = {"filter": {"resource": {"id": [f"batchjobs.job.{job.name}"]}}}

    def look() -> list[dict[str, Any]]:
        with get_client(sync_client=True) as client:
            found: list[dict[str, Any]] = client.request("POST", "/events/filter", json=mine).json()["events"]
            return found

    return eventually(look, lambda found: len(found) >= count)


def test_a_completed_job_is_an_event_with_its_output_and_figures(make_job: MakeJob) -> None:
    job = make_job(text_table(20), name="told", cost={"usd_per_hour": 2.5})
    summary = run_in_process(job, False, Silent())
    (event,) = told(job)
    assert event["event"] == "batchjobs.job.completed"
    figures = event["payload"]
    assert figures["output"] == job.output.path
    assert (figures["state"], figures["exit_code"], figures["message"]) == ("completed", 0, summary.message)
    assert figures["rows"] == {"ok": 20, "error": 0, "total": 20, "generated": 20}
    assert figures["tokens"] == {"prompt": summary.tokens.prompt, "output": summary.tokens.output}
    assert (figures["seconds"], figures["usd"]) == (summary.seconds.wall, summary.cost.usd_total)
    related = {each["prefect.resource.id"] for each in event["related"]}
    assert f"prefect.flow-run.{run_named('told').id}" in related


def test_a_run_that_finds_its_job_done_tells_it_again(make_job: MakeJob) -> None:
    job = make_job(name="told-twice")
    run_in_process(job, False, Silent())
    run_in_process(job, False, Silent())
    assert [event["event"] for event in told(job, 2)] == ["batchjobs.job.completed"] * 2


def test_partial_failed_and_refused_are_events_of_their_own(make_job: MakeJob) -> None:
    partial = make_job(name="told-partial", engine={"echo": {"error_rows": [1, 2]}})
    run_in_process(partial, False, Silent())
    refused = make_job(name="told-refused", sampling={"max_tokens": 5})
    with pytest.raises(OutputError):
        run_in_process(refused, False, Silent())
    broken = {"echo": {"fail_at_start": "no such device"}}
    failed = make_job(name="told-failed", engine=broken, output={"path": f"{refused.output.path}-2"})
    run_in_process(failed, False, Silent())
    for job, state, code in ((partial, "partial", 3), (refused, "refused", 2), (failed, "failed", 1)):
        (event,) = told(job)
        known = event["payload"]
        assert (event["event"], known["state"], known["exit_code"]) == (f"batchjobs.job.{state}", state, code)
        assert known["output"] == job.output.path
        assert known["message"]


def test_an_event_that_cannot_be_sent_does_not_change_how_a_job_ends(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("too large")

    monkeypatch.setattr(events, "emit_event", refuse)
    assert run_in_process(make_job(name="untold"), False, Silent()).state == "completed"
    assert any("too large" in line.message and line.level == 30 for line in log_of(run_named("untold")))


def test_the_event_starts_another_deployment_with_the_folder_of_results(
    make_job: MakeJob, prefect_api: str, pool: str, tmp_path: Path
) -> None:
    match = {"prefect.resource.id": "batchjobs.job.feeds-*"}
    trigger = {"type": "event", "expect": ["batchjobs.job.completed"], "match": match,
               "parameters": {"output": "{{ event.payload.output }}"}}  # fmt: skip
    deployment = {"name": "example", "entrypoint": "flows.consumer.consumer", "triggers": [trigger],
                  "work_pool": {"name": pool}}  # fmt: skip
    pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(tmp_path)}}]
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"pull": pull, "deployments": [deployment]}))
    subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=tmp_path, env={**os.environ, "PREFECT_API_URL": prefect_api}, check=True, capture_output=True,
    )  # fmt: skip
    job = make_job(text_table(12), name="feeds-others")
    with worker(prefect_api, tmp_path):
        run_in_process(job, False, Silent())
        (run,) = eventually(consumers, lambda runs: len(runs) == 1 and runs[0].state_name == "Completed", seconds=90)
        assert any(f"{job.output.path} has 12 rows." in line.message for line in log_of(run))
    assert run.parameters == {"output": job.output.path}


def consumers() -> list[FlowRun]:
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_filter=FlowFilter(name=FlowFilterName(any_=["consumer"])))
