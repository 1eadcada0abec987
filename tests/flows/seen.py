"""What the Prefect API shows of a flow run."""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterName,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import Artifact, FlowRun, Log, TaskRun
from prefect.client.schemas.sorting import FlowRunSort, LogSort

from tests.waiting import eventually


def run_named(name: str) -> FlowRun:
    """The latest flow run of that name."""
    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=[name]))
        return client.read_flow_runs(flow_run_filter=named, sort=FlowRunSort.START_TIME_DESC, limit=1)[0]


def tasks_of(run: FlowRun, count: int = 3) -> dict[str, TaskRun]:
    """Its task runs by name, once `count` of them have ended."""
    with get_client(sync_client=True) as client:
        mine = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
        tasks = eventually(
            lambda: client.read_task_runs(flow_run_filter=mine),
            lambda found: len([task for task in found if task.state and task.state.is_final()]) == count,
        )
        return {task.name: task for task in tasks}


def artifacts_of(run: FlowRun) -> dict[str, Artifact]:
    """Its artifacts by type."""
    with get_client(sync_client=True) as client:
        mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        return {str(artifact.type): artifact for artifact in client.read_artifacts(artifact_filter=mine)}


def data_of(run: FlowRun) -> dict[str, str]:
    """What its artifacts that have a key hold, by key; a table is JSON."""
    with get_client(sync_client=True) as client:
        mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        return {each.key: str(each.data) for each in client.read_artifacts(artifact_filter=mine) if each.key}


def log_of(run: FlowRun) -> list[Log]:
    """Its log, from the first line to the flow run's own last one."""
    return eventually(
        lambda: _log(run.id),
        lambda lines: any(line.task_run_id is None and "Finished in state" in line.message for line in lines),
    )


def _log(run: UUID) -> list[Log]:
    with get_client(sync_client=True) as client:
        mine = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run]))
        return client.read_logs(log_filter=mine, sort=LogSort.TIMESTAMP_ASC)
