"""Two workers, two deployments, one device: Prefect's limits let both runs begin, and the lock of the core keeps them
apart."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment

from schemas.job import JobSpec
from schemas.summary import Summary
from tests.conftest import MakeJob, text_table, write_spec
from tests.flows.operating import deploy
from tests.flows.server import worker
from tests.waiting import eventually

pytestmark = pytest.mark.prefect

_TOLD = "gpu0 is held by job adhoc of "


def started(deployment: str, **parameters: object) -> UUID:
    run = run_deployment(deployment, parameters=parameters, timeout=0, as_subflow=False)
    assert isinstance(run, FlowRun)
    return run.id


def ended(run_id: UUID) -> FlowRun:
    with get_client(sync_client=True) as client:
        return eventually(
            lambda: client.read_flow_run(run_id), lambda run: bool(run.state and run.state.is_final()), seconds=120
        )


def messages_of(run_id: UUID) -> list[str]:
    with get_client(sync_client=True) as client:
        mine = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id]))
        return [line.message for line in client.read_logs(log_filter=mine)]


def summary_in(job: JobSpec) -> Summary:
    return Summary.model_validate_json((Path(job.output.path) / "_batchjobs/summary.json").read_bytes())


def test_a_night_on_another_worker_waits_for_the_device_of_an_ad_hoc_run(
    make_job: MakeJob, tmp_path: Path, prefect_api: str, pool: str
) -> None:
    deploy(prefect_api, tmp_path)
    engine = {"echo": {"tokens_per_s": 35}}  # some minutes of work
    adhoc = make_job(text_table(1000), name="adhoc", engine=engine, output={"path": str(tmp_path / "adhoc")})
    night = make_job(text_table(1000), name="night", output={"path": str(tmp_path / "night")})
    devices = {"BATCHJOBS_DEVICES": "gpu0", "BATCHJOBS_LOCKS": str(tmp_path / "locks")}
    with worker(prefect_api, tmp_path, "one", **devices), worker(prefect_api, tmp_path, "two", **devices):
        first = started("batch-inference/adhoc", job=adhoc.model_dump(mode="json", exclude_defaults=True))
        eventually(lambda: list((tmp_path / "adhoc").glob("part-*")), bool, seconds=90)
        second = started("nightly/nightly", job_file=str(write_spec(night, tmp_path / "night.yaml")))
        eventually((tmp_path / "night/_batchjobs/waiting.json").exists, bool, seconds=90)
        os.kill(json.loads((tmp_path / "locks/gpu0.lock").read_text())["pid"], signal.SIGTERM)
        runs = [ended(first), ended(second)]
    assert [run.state_name for run in runs] == ["Partial", "Completed"], [run.state for run in runs]
    held, waited = summary_in(adhoc), summary_in(night)
    assert waited.seconds.waiting > 0
    (end,) = [attempt.ended for attempt in held.attempts]
    assert end is not None
    assert all(attempt.started >= end for attempt in waited.attempts)
    eventually(lambda: messages_of(second), lambda said: any(line.startswith(_TOLD) for line in said))
