"""The deployments of `prefect.yaml`, made from Python; a second call changes nothing but what differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.objects import ConcurrencyLimitStrategy as Strategy
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner.storage import LocalStorage
from prefect.types.entrypoint import EntrypointType
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError

from batchjobs.errors import Refused
from flows.api import require_api
from flows.batch_inference import batch_inference
from flows.nightly import nightly


def deploy(
    folder: Path,
    job_files: Sequence[str] = (),
    cron: str = "0 2 * * *",
    timezone: str = "Europe/Berlin",
    pool: str = "gpu",
) -> list[str]:
    """Make the work pool, `batch-inference/adhoc`, `nightly/backfill` and, if there are job files, `nightly/nightly`.

    Returns their names. Job files are named relative to `folder`, in which the flows will run. Raises Refused before
    anything is changed.
    """
    missing = [file for file in job_files if not (folder / file).is_file()]
    if missing:
        raise Refused(f"No such job file in {folder.resolve()}: {', '.join(missing)}. Nothing was deployed.")
    try:
        schedule = CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise Refused(f"There is no such schedule: {reason}. Nothing was deployed.") from None
    require_api("nothing was deployed")
    _make_pool(pool)
    _apply(adhoc(), folder, pool)
    _apply(backfill(), folder, pool)
    if job_files:
        # Not given to the deployment itself, which would resume a schedule that somebody has paused.
        _apply(nights(job_files), folder, pool, [{"schedule": schedule, "slug": "nightly"}])
    return ["batch-inference/adhoc", "nightly/backfill", *(["nightly/nightly"] if job_files else [])]


def _apply(deployment: RunnerDeployment, folder: Path, pool: str, schedules: Sequence[dict[str, Any]] = ()) -> None:
    deployment.storage = LocalStorage(str(folder))
    deployment.apply(schedules=list(schedules), work_pool_name=pool)


def adhoc() -> RunnerDeployment:
    """What `batchjobs submit` starts: one after the other."""
    return _one_at_a_time(batch_inference, "adhoc", "Runs of jobs that somebody submits.", Strategy.ENQUEUE)


def nights(job_files: Sequence[str]) -> RunnerDeployment:
    """The nightly job files; a night that is not over yet is not begun again."""
    files = {"job_file": job_files[0]} if len(job_files) == 1 else {"job_files": list(job_files)}
    return _one_at_a_time(nightly, "nightly", "The nightly job.", Strategy.CANCEL_NEW, files)


def backfill() -> RunnerDeployment:
    """Nights that are missing. Its limit is its own, so that it is never what cancels tonight's run."""
    return _one_at_a_time(nightly, "backfill", "Nights that are missing, oldest first.", Strategy.ENQUEUE)


def _one_at_a_time(
    flow: Flow[..., Any],
    name: str,
    description: str,
    strategy: Strategy,
    parameters: dict[str, Any] | None = None,
) -> RunnerDeployment:
    deployment = flow.to_deployment(
        name,
        description=description,
        tags=["batchjobs", name],
        parameters=parameters,
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=strategy),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    assert isinstance(deployment, RunnerDeployment)  # not a coroutine: no event loop runs here
    return deployment


def _make_pool(name: str) -> None:
    """A process pool, unless there is a pool of that name: what somebody has set there stays."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            template = ProcessWorker.get_default_base_job_template()
            client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
