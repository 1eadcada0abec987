"""Start an ad-hoc run of a deployment, on whichever worker serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.utilities.urls import url_for

from batchjobs.errors import Refused
from flows.api import api_answers, api_configured, api_url
from schemas.job import JobSpec


@dataclass(frozen=True)
class SubmittedRun:
    """A flow run that waits for a worker."""

    id: UUID
    name: str
    url: str | None  # in the UI


def submit(
    job: JobSpec, deployment: str = "batch-inference/adhoc", tags: Sequence[str] = (), force: bool = False
) -> SubmittedRun:
    """Schedule a run of `deployment` with this spec, at once; raises Refused.

    The spec goes out as it is: paths absolute, `${ENV}` references unresolved (the worker resolves them).
    """
    parameters: dict[str, Any] = {"job": job.model_dump(mode="json", exclude_defaults=True)}
    if force:  # only then: a deployment of an older version takes the rest
        parameters["force"] = True
    return schedule_run(deployment, parameters, tags)


def schedule_run(deployment: str, parameters: dict[str, Any], tags: Sequence[str] = ()) -> SubmittedRun:
    """A run of a deployment with these parameters, at once; raises Refused."""
    _check_api()
    try:
        run = run_deployment(deployment, parameters=parameters, timeout=0, tags=tags, as_subflow=False)
    except ObjectNotFound:
        raise Refused(_no_deployment(deployment)) from None
    except PrefectHTTPStatusError as error:
        raise Refused(
            f"Prefect refused the run of {deployment}, so nothing was submitted: {_detail(error)}\n"
            "If batchjobs was upgraded since that was deployed, deploy it again: `prefect deploy --all`."
        ) from error
    assert isinstance(run, FlowRun)  # not a coroutine: no event loop runs here
    return SubmittedRun(run.id, run.name, url_for(run))


def _check_api() -> None:
    if not api_configured():
        raise Refused(
            "No Prefect API is configured, so nothing was submitted. Start one with `prefect server start` and say "
            "`prefect config set PREFECT_API_URL=http://127.0.0.1:4200/api`, or run the job here: batchjobs run."
        )
    if not api_answers():
        raise Refused(
            f"The Prefect API at {api_url()} does not answer, so nothing was submitted. "
            "Is `prefect server start` running there?"
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
