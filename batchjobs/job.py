"""A job from spec to summary in three steps that the command line and the Prefect flow share: prepare, run, finish."""

from __future__ import annotations

import logging
import time

from batchjobs.accounts.accounting import summarise
from batchjobs.accounts.baseline import breaches, judged
from batchjobs.accounts.figures import RunFigures
from batchjobs.accounts.prometheus import prometheus_text
from batchjobs.comparison.previous import LOOK_BACK, previous_of
from batchjobs.errors import StorageFailed
from batchjobs.settings.history import record_of, records, write_record
from batchjobs.storage.checkpoint import clean_temporary, committed_shards, part_name
from batchjobs.storage.journal import clean_journal
from batchjobs.storage.output import METRICS, PROGRESS, SUCCESS, SUMMARY
from batchjobs.supervision.prepared import PreparedJob, prepare
from batchjobs.supervision.progress import Reporter
from batchjobs.supervision.run import run
from schemas.job import JobSpec
from schemas.summary import Summary

__all__ = ["PreparedJob", "finish", "prepare", "run", "run_job"]

logger = logging.getLogger("batchjobs")


def finish(prepared: PreparedJob, figures: RunFigures, in_history: bool = True) -> Summary:
    """Write the summary (and `_SUCCESS`) and let the output go; with nothing to do, write nothing.

    A run that is more than a trial is held against the one before it and gets into the job's history. A summary that
    the storage does not take makes the job `failed`; it is returned all the same.
    """
    if prepared.stored is not None:
        return prepared.stored
    try:
        _miss_lost_parts(prepared, figures)
        summary = _summary(prepared, figures)
        summary = _judged(prepared, summary) if in_history else summary
        if figures.attempts and in_history:  # before `_SUCCESS`, which is the very last
            write_record(prepared.resolved, record_of(prepared.job, prepared.plan, summary, prepared.lengths))
        try:
            _store(prepared, summary)
        except StorageFailed as problem:
            logger.warning("The summary is not stored: %s.", problem)
            figures.failure = figures.failure or str(problem)
            summary = _summary(prepared, figures)
        return summary
    finally:
        prepared.lock.release()


def _summary(prepared: PreparedJob, figures: RunFigures) -> Summary:
    return summarise(
        prepared.job,
        prepared.plan,
        prepared.earlier,
        figures,
        prepared.attempts,
        time.monotonic() - prepared.began,
        prepared.plan_s,
        prepared.sizing,
        prepared.foreseen,
    )


def _judged(prepared: PreparedJob, summary: Summary) -> Summary:
    """The summary held against the run before; what breaches a threshold is told to whoever watches, too."""
    previous = prepared.previous
    if previous is None or summary.rows.generated:
        now = record_of(prepared.job, prepared.plan, summary, prepared.lengths)
        previous = previous_of(now, records(prepared.resolved, last=LOOK_BACK))
    found = judged(summary.model_copy(update={"previous": previous}), prepared.job.baseline)
    for breach in breaches(found.previous):
        logger.warning("Against the run before: %s.", breach)
    return found


def _store(prepared: PreparedJob, summary: Summary) -> None:
    """The summary after what it makes disposable, and `_SUCCESS` last: with it, nothing is left to be done."""
    store = prepared.store
    if summary.shards.committed == summary.shards.total:
        clean_journal(store)
    clean_temporary(store)
    store.delete([PROGRESS])
    store.publish(SUMMARY, summary.model_dump_json(indent=1).encode(), replace=True)
    store.publish(METRICS, prometheus_text(summary), replace=True)
    if summary.state == "completed":
        store.publish(SUCCESS, b"")


def _miss_lost_parts(prepared: PreparedJob, figures: RunFigures) -> None:
    """A part that somebody removed while the job ran is not committed, whatever we remember."""
    try:
        there = committed_shards(prepared.store)
    except StorageFailed:
        return  # nobody can look now; what follows will say that the storage is away
    lost = {commit.shard for commit in [*prepared.earlier, *figures.commits]} - there
    if lost:
        prepared.earlier = [commit for commit in prepared.earlier if commit.shard in there]
        figures.commits = [commit for commit in figures.commits if commit.shard in there]
        figures.failure = f"{len(lost)} parts were removed while the job ran, such as {part_name(min(lost))}"


def run_job(job: JobSpec, reporter: Reporter, frozen_input: bool = False, force: bool = False) -> Summary:
    """All three steps."""
    prepared = prepare(job, frozen_input, force=force)
    try:
        return finish(prepared, run(prepared, reporter))
    finally:
        prepared.lock.release()
