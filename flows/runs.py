"""Flow runs of jobs that are not over yet: all of them, the one of an output, the one that somebody names."""

from __future__ import annotations

import os
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType, WorkerStatus
from prefect.exceptions import ObjectNotFound
from prefect.utilities.urls import url_for

FLOWS = ["batch-inference", "nightly"]  # ours
_OPEN = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]


def open_runs() -> list[FlowRun]:
    """Runs of our flows that have not ended, those that are only scheduled too (Prefect's page of 200)."""
    ours = FlowFilter(name=FlowFilterName(any_=FLOWS))
    not_over = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_OPEN)))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_filter=ours, flow_run_filter=not_over)


def open_run_of(output: str) -> FlowRun | None:
    """The run that has a job with this output path. One of `nightly` names a file instead, and is not found here."""
    return next((run for run in open_runs() if _same(output_of(run), output)), None)


def output_of(run: FlowRun) -> str | None:
    """The output path of the job that the run was given."""
    try:
        return str(run.parameters["job"]["output"]["path"])
    except (KeyError, TypeError):
        return None


def _same(one: str | None, other: str) -> bool:
    return one is not None and _plain(one) == _plain(other)


def _plain(path: str) -> str:
    """References replaced as far as they are set here, for a comparison only."""
    return os.path.expandvars(path).removeprefix("file://").rstrip("/")


def run_by_id(run: UUID) -> FlowRun | None:
    """A run, over or not."""
    with get_client(sync_client=True) as client:
        try:
            return client.read_flow_run(run)
        except ObjectNotFound:
            return None


def worker_is_online(pool: str) -> bool:
    """Whether a worker of the pool has given a sign of life lately."""
    with get_client(sync_client=True) as client:
        return any(worker.status == WorkerStatus.ONLINE for worker in client.read_workers_for_work_pool(pool))


def no_worker(pool: str) -> str:
    """What to tell people then."""
    return (
        f"No worker is online in the pool {pool}, so the run waits. Start one on the machine with the GPU: "
        f"prefect worker start --pool {pool} --limit 1"
    )


def described(run: FlowRun) -> str:
    """A run for people: its name, state, and where it is seen."""
    return f"{run.name} ({run.id}, {run.state_name}) {url_for(run) or ''}".rstrip()
