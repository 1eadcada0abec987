"""The flow `batch-inference`: one job, one flow run. Deployed, or run in the process of `batchjobs run`."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from batchjobs.job import run_job
from batchjobs.supervision.progress import Reporter
from flows.api import api_configured, impatient, some_api
from flows.logs import quiet_console
from flows.steps import Caller, Work, called_by, carry_out, exit_code_of
from schemas.job import JobSpec
from schemas.summary import Summary

__all__ = ["batch_inference", "exit_code_of", "run_in_process"]


@flow(name="batch-inference", flow_run_name="{job.name}", persist_result=False)
def batch_inference(job: JobSpec, frozen_input: bool = False, force: bool = False) -> State[Any]:
    """Every row of a Parquet dataset gets one answer. Run it again to go on: committed shards are never done twice.

    Args:
        job: The job spec, as in a job file; paths absolute.
        frozen_input: Finish what was planned, though files have arrived since.
        force: Run though deadline or budget cannot be met; it stops in time all the same.
    """
    return carry_out(lambda: job, frozen_input, force)


def run_in_process(job: JobSpec, frozen_input: bool, reporter: Reporter, force: bool = False) -> Summary:
    """Run the flow here and return the job's summary; `reporter` is told what Prefect is told.

    Raises what the job itself raised (BatchjobsError). Without a Prefect that answers, the job runs all the same.
    """
    quiet_console()
    caller, trouble = Caller(reporter, has_ui=api_configured()), None
    try:
        with some_api(), impatient(), called_by(caller):
            batch_inference(job, frozen_input, force, return_state=True)
    except Exception as error:
        trouble = error
    if caller.work is None:
        reporter.log(f"Prefect cannot begin the flow run, so the job runs without it. {trouble}")
        return run_job(job, reporter, frozen_input, force)
    return _outcome(caller.work, reporter, trouble)


def _outcome(work: Work, reporter: Reporter, trouble: Exception | None) -> Summary:
    """What the job came to, whatever Prefect made of it."""
    if work.error is not None:
        raise work.error
    if work.summary is None:
        raise trouble or RuntimeError("Prefect ended the flow run before the job was done; its log says why.")
    if trouble is not None:
        reporter.log(f"Prefect was not told how the job ended. {trouble}")
    return work.summary
