"""Start an ad-hoc run of a deployment, on whichever worker serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.utilities.urls import url_for

from batchjobs.errors import Refused, SpecError
from batchjobs.spec import resolve_references
from batchjobs.storage.holder import holder_of
from batchjobs.storage.lease import described as described_holder
from batchjobs.storage.store import open_store
from flows.api import api_url, require_api
from flows.runs import described, no_worker, open_run_of, worker_is_online
from schemas.job import JobSpec


@dataclass(frozen=True)
class SubmittedRun:
    """A flow run that waits for a worker."""

    id: UUID
    name: str
    url: str | None  # in the UI
    warning: str | None = None  # why it may have to wait for long


def submit(
    job: JobSpec, deployment: str = "batch-inference/adhoc", tags: Sequence[str] = (), force: bool = False
) -> SubmittedRun:
    """Schedule a run of `deployment` with this spec, at once; raises Refused, also while a run has the same output.

    The spec goes out as it is: paths absolute, `${ENV}` references unresolved (the worker resolves them).

    Two that submit the same job in the same moment may both be taken. That costs nothing: one run has the output, the
    other one finds it in use, or everything done.
    """
    require_api("nothing was submitted")
    _refuse_twice(job)
    _refuse_in_use(job)
    parameters: dict[str, Any] = {"job": job.model_dump(mode="json", exclude_defaults=True)}
    if force:  # only then: a deployment of an older version takes the rest
        parameters["force"] = True
    return schedule_run(deployment, parameters, tags, name=job.name)


def schedule_run(
    deployment: str, parameters: dict[str, Any], tags: Sequence[str] = (), name: str | None = None
) -> SubmittedRun:
    """A run of a deployment with these parameters, at once; raises Refused."""
    require_api("nothing was submitted")
    try:
        run = run_deployment(
            deployment, parameters=parameters, flow_run_name=name, timeout=0, tags=tags, as_subflow=False,
            # What Prefect's client sends again, because no answer came, is the same run.
            idempotency_key=uuid4().hex,
        )  # fmt: skip
    except ObjectNotFound:
        raise Refused(_no_deployment(deployment)) from None
    except PrefectHTTPStatusError as error:
        raise Refused(
            f"Prefect refused the run of {deployment}, so nothing was submitted: {_detail(error)}\n"
            "If batchjobs was upgraded since that was deployed, deploy it again: `prefect deploy --all`."
        ) from error
    assert isinstance(run, FlowRun)  # not a coroutine: no event loop runs here
    pool = run.work_pool_name
    warning = no_worker(pool) if pool is not None and not worker_is_online(pool) else None
    return SubmittedRun(run.id, run.name, url_for(run), warning)


def _refuse_twice(job: JobSpec) -> None:
    run = open_run_of(job.output.path)
    if run is not None:
        raise Refused(
            f"A run with the output {job.output.path} is not over yet, so nothing was submitted: {described(run)}\n"
            f"Wait for it, or end it: batchjobs cancel {run.id}"
        )


def _refuse_in_use(job: JobSpec) -> None:
    """What the API cannot tell: a `batchjobs run` without Prefect, a night. Sees what can be seen from this machine."""
    try:
        output = resolve_references(job).output
        holder = holder_of(open_store(output.path, output.storage_options))
    except (SpecError, OSError, ImportError):
        return
    if holder is not None:
        raise Refused(
            f"The output {job.output.path} is in use by {described_holder(holder)}, so nothing was submitted. "
            f"Wait for it, or end it: batchjobs cancel {job.output.path}"
        )


def _no_deployment(deployment: str) -> str:
    return (
        f"The deployment {deployment} does not exist at {api_url()}, so nothing was submitted. Create it with "
        "`prefect deploy --all` in the folder of prefect.yaml, and start a worker: `prefect worker start --pool gpu`."
    )


def _detail(error: PrefectHTTPStatusError) -> str:
    try:
        return str(error.response.json().get("detail", error))
    except (ValueError, httpx.ResponseNotRead):
        return str(error)
