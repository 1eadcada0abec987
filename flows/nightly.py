"""The flow `nightly`: a job file, run on a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from batchjobs.spec import load_job
from flows.steps import carry_out


def _run_name() -> str:
    """The job file's name and the night that the run is for."""
    return f"{Path(flow_run.parameters['job_file']).stem}-{flow_run.scheduled_start_time:%Y-%m-%d}"


@flow(name="nightly", flow_run_name=_run_name, persist_result=False)
def nightly(job_file: str, force: bool = False) -> State[Any]:
    """Run the job in a job file. The file is read when the run starts, so editing it needs no new deployment.

    Args:
        job_file: Path of the job file (YAML), absolute or relative to the deployment's working directory.
        force: Run though deadline or budget cannot be met; it stops in time all the same, and the next night goes on.
    """
    return carry_out(lambda: load_job(job_file), force=force)
