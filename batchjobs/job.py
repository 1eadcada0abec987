"""A job from spec to summary in three steps, which the command line and the Prefect flow share."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from batchjobs.accounting import summarise, verdict
from batchjobs.attempts import close_lost, next_number, read_attempts, renewed, write_attempt
from batchjobs.checkpoint import Commit, clean_temporary, committed_shards, read_commits
from batchjobs.dispatcher import Dispatcher, stopped_by_signals
from batchjobs.errors import OutputError
from batchjobs.figures import RunFigures
from batchjobs.lock import OutputLock, acquire
from batchjobs.plan import check_overlap, compare, make_plan, read_dataset, versions
from batchjobs.preflight import check_engine
from batchjobs.process import ReplicaProcess, last_lines
from batchjobs.progress import Progress, Reporter, progress_of
from batchjobs.sampling import row_field_names
from batchjobs.spec import dump_job, resolve_references
from batchjobs.store import LocalStore, Store, open_store
from batchjobs.tokens import load_tokenizer
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.summary import Attempt, Summary

logger = logging.getLogger("batchjobs")

PLAN, SPEC, SUMMARY = "_batchjobs/plan.json", "_batchjobs/spec.yaml", "_batchjobs/summary.json"
PROGRESS, SUCCESS = "_batchjobs/progress.json", "_SUCCESS"
_HEARTBEAT_S = 3.0  # between writes of progress.json and of the attempt's record


@dataclass
class PreparedJob:
    """A job that may run: planned, compared with what is there, and its output locked."""

    job: JobSpec  # as given, references kept
    resolved: JobSpec
    store: Store
    plan: Plan
    paths: list[str]  # where each planned input file is now
    lock: OutputLock
    began: float  # monotonic
    plan_s: float = 0.0
    earlier: list[Commit] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    stored: Summary | None = None  # set when there is nothing to do

    @property
    def left(self) -> list[int]:
        """Shards without a part."""
        done = {commit.shard for commit in self.earlier}
        return [index for index in range(len(self.plan.shards)) if index not in done]


def prepare(job: JobSpec, frozen_input: bool = False) -> PreparedJob:
    """Check everything, plan or find the earlier plan, take the lock. Raises Refused before anything is written."""
    began = time.monotonic()
    resolved = resolve_references(job)
    store = open_store(resolved.output.path, resolved.output.storage_options)
    dataset = read_dataset(resolved)
    check_overlap(resolved, dataset)
    plan = make_plan(job, resolved, dataset)
    frozen = read_plan(store)
    if frozen is None:
        _refuse_foreign(store)
        check_engine(resolved, row_field_names(job.sampling, dataset.schema))
        load_tokenizer(resolved, plan.as_of)
        paths = [file.path for file in plan.files]
    else:
        paths = compare(frozen, plan, store.url, frozen_input)
        plan = frozen
    prepared = PreparedJob(job, resolved, store, plan, paths, OutputLock(None), began)
    prepared.stored = nothing_to_do(store, plan, job)
    if prepared.stored is None:
        _begin(prepared)
    prepared.plan_s = time.monotonic() - began
    return prepared


def read_plan(store: Store) -> Plan | None:
    """The plan frozen in an output folder, or None."""
    data = store.read(PLAN)
    return None if data is None else Plan.model_validate_json(data)


def _refuse_foreign(store: Store) -> None:
    foreign = [name for name in store.names() if name != "_batchjobs"]
    if foreign:
        raise OutputError(
            f"output.path: {store.url} is not empty and not an output of batchjobs (it has {foreign[0]}). "
            "Nothing was changed; use an empty or new folder."
        )


def nothing_to_do(store: Store, plan: Plan, job: JobSpec) -> Summary | None:
    """The stored summary, if every shard is committed and the verdict of today's spec is the one it has."""
    data = store.read(SUMMARY)
    if data is None or len(committed_shards(store)) < len(plan.shards):
        return None
    stored = Summary.model_validate_json(data)
    state, _ = verdict(job, plan, stored.rows, stored.shards.committed, RunFigures())
    return stored if state == stored.state else None


def _begin(prepared: PreparedJob) -> None:
    """Everything that writes: only with the lock in hand."""
    store = prepared.store
    prepared.lock = acquire(store)
    try:
        clean_temporary(store)
        frozen = read_plan(store)
        if frozen is None:
            store.publish(SPEC, dump_job(prepared.job).encode())
            store.publish(PLAN, prepared.plan.model_dump_json().encode())
        elif frozen.fingerprint != prepared.plan.fingerprint:
            raise OutputError(f"The output {store.url} was begun by another job just now. Nothing was changed.")
        prepared.earlier = read_commits(store, committed_shards(store))
        prepared.attempts = close_lost(store, read_attempts(store))
    except BaseException:
        prepared.lock.release()
        raise


def run(prepared: PreparedJob, reporter: Reporter) -> RunFigures:
    """Run what is left through a replica; commits appear as shards finish. Holds the lock that `prepare` took."""
    if not prepared.left:
        return RunFigures()
    number = next_number(prepared.attempts)
    with tempfile.TemporaryDirectory(prefix="batchjobs-") as folder:
        log = _log_file(prepared.store, number, Path(folder))
        record = _record(prepared, number)
        write_attempt(prepared.store, record)
        beat = _Heartbeat(prepared.store, record)
        dispatcher = Dispatcher(
            start=lambda: _start(prepared, number, log),
            shards=prepared.left,
            reporter=reporter,
            progress=lambda figures: progress_of(figures, prepared.plan, prepared.earlier, number, prepared.job.cost),
            heartbeat=beat,
            drain_seconds=prepared.job.run.drain_seconds,
        )
        with stopped_by_signals(dispatcher.stop):
            figures = dispatcher.run()
        _close(prepared, beat.record, figures, log)
    return figures


def _log_file(store: Store, number: int, folder: Path) -> Path:
    """Where the replica logs: in the output folder, or in a temporary one that is uploaded at the end."""
    if isinstance(store, LocalStore):
        folder = store.root / "_batchjobs" / "logs"
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{number:04d}.log"


def _record(prepared: PreparedJob, number: int) -> Attempt:
    engine = prepared.job.engine.model_dump(mode="json", exclude_defaults=True, exclude={"env", "echo"})
    price = prepared.job.cost.usd_per_hour if prepared.job.cost else None
    now = datetime.now(UTC)
    return Attempt(replica=0, attempt=number, started=now, usd_per_hour=price, settings=engine, versions=versions())


def _start(prepared: PreparedJob, number: int, log: Path) -> ReplicaProcess:
    resolved = prepared.resolved
    environment = {"VLLM_NO_USAGE_STATS": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "PYTHONUNBUFFERED": "1"}
    order = {
        "job": resolved.model_dump(mode="json"),
        "plan": prepared.plan.model_dump_json(),
        "paths": prepared.paths,
        "attempt": number,
    }
    python = resolved.engine.python or sys.executable
    return ReplicaProcess(
        python, {**environment, **os.environ, **resolved.engine.env}, log, prepared.lock.descriptor, order
    )


class _Heartbeat:
    """Writes `progress.json` and the attempt's record every few seconds: what a killed run leaves behind."""

    def __init__(self, store: Store, record: Attempt) -> None:
        self.record = record
        self._store, self._next = store, 0.0

    def __call__(self, figures: RunFigures, now: Progress) -> None:
        self.record = renewed(self.record, figures.held_s, now.rows_done - now.rows_reused)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _HEARTBEAT_S
            self._store.publish(PROGRESS, now.model_dump_json().encode(), replace=True)
            write_attempt(self._store, self.record)


def _close(prepared: PreparedJob, record: Attempt, figures: RunFigures, log: Path) -> None:
    cause = "stopped" if figures.stopped else "done"
    if figures.failure is not None:
        cause = "start_failed" if figures.ready_s is None else "died"
    versions_now = {**record.versions, **({"engine": figures.engine["version"]} if figures.engine else {})}
    evidence = last_lines(log) if figures.failure is not None else []
    record = record.model_copy(update={"cause": cause, "evidence": evidence, "versions": versions_now})
    write_attempt(prepared.store, record)
    prepared.attempts = [*prepared.attempts, record]
    if not isinstance(prepared.store, LocalStore) and log.exists():
        prepared.store.publish(f"_batchjobs/logs/{log.name}", log.read_bytes(), replace=True)


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
