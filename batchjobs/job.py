"""A job from spec to summary in three steps that the command line and the Prefect flow share: prepare, run, finish."""

from __future__ import annotations

import time

from batchjobs.accounting import summarise
from batchjobs.figures import RunFigures
from batchjobs.output import PROGRESS, SUCCESS, SUMMARY
from batchjobs.prepared import PreparedJob, prepare
from batchjobs.progress import Reporter
from batchjobs.run import run
from schemas.job import JobSpec
from schemas.summary import Summary

__all__ = ["PreparedJob", "finish", "prepare", "run", "run_job"]


def finish(prepared: PreparedJob, figures: RunFigures) -> Summary:
    """Write the summary (and `_SUCCESS`) and let the output go; with nothing to do, write nothing."""
    if prepared.stored is not None:
        return prepared.stored
    try:
        summary = summarise(
            prepared.job,
            prepared.plan,
            prepared.earlier,
            figures,
            prepared.attempts,
            time.monotonic() - prepared.began,
            prepared.plan_s,
        )
        prepared.store.publish(SUMMARY, summary.model_dump_json(indent=1).encode(), replace=True)
        if summary.state == "completed":
            prepared.store.publish(SUCCESS, b"")
        prepared.store.delete([PROGRESS])
        return summary
    finally:
        prepared.lock.release()


def run_job(job: JobSpec, reporter: Reporter, frozen_input: bool = False) -> Summary:
    """All three steps."""
    prepared = prepare(job, frozen_input)
    try:
        figures = run(prepared, reporter) if prepared.stored is None else RunFigures()
        return finish(prepared, figures)
    finally:
        prepared.lock.release()
