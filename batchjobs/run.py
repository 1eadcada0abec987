"""One attempt of a job: a replica's process from start to end, its log, and the record that it leaves behind."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from batchjobs.attempts import next_number, renewed, write_attempt
from batchjobs.dispatcher import Dispatcher, stopped_by_signals
from batchjobs.figures import RunFigures
from batchjobs.output import LOGS, PROGRESS
from batchjobs.plan import versions, warn_of_versions
from batchjobs.prepared import PreparedJob
from batchjobs.process import ReplicaProcess, last_lines
from batchjobs.progress import Progress, Reporter, progress_of
from batchjobs.store import LocalStore, Store
from schemas.summary import Attempt

_HEARTBEAT_S = 3.0  # between writes of progress.json and of the attempt's record


def run(prepared: PreparedJob, reporter: Reporter) -> RunFigures:
    """Run what is left through a replica; commits appear as shards finish. Holds the lock that `prepare` took."""
    if not prepared.left:
        return RunFigures()
    number = next_number(prepared.attempts)
    with tempfile.TemporaryDirectory(prefix="batchjobs-") as folder:
        log = _log_file(prepared.store, number, Path(folder))
        record = _record(prepared, number)
        write_attempt(prepared.store, record)
        beat = _Heartbeat(prepared.store, record, prepared.attempts)
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
        folder = store.root / LOGS
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

    def __init__(self, store: Store, record: Attempt, earlier: list[Attempt]) -> None:
        self.record = record
        self._store, self._next = store, 0.0
        self._earlier = {attempt.versions["engine"] for attempt in earlier if "engine" in attempt.versions}

    def __call__(self, figures: RunFigures, now: Progress) -> None:
        self.record = renewed(self.record, figures.held_s, now.rows_done - now.rows_reused)
        if figures.engine and "engine" not in self.record.versions:
            self.record = self.record.model_copy(
                update={"versions": {**self.record.versions, "engine": figures.engine["version"]}}
            )
            warn_of_versions("engine", self._earlier, figures.engine["version"])
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _HEARTBEAT_S
            self._store.publish(PROGRESS, now.model_dump_json().encode(), replace=True)
            write_attempt(self._store, self.record)


def _close(prepared: PreparedJob, record: Attempt, figures: RunFigures, log: Path) -> None:
    cause = "stopped" if figures.stopped else "done"
    if figures.failure is not None:
        cause = "start_failed" if figures.ready_s is None else "died"
    evidence = last_lines(log) if figures.failure is not None else []
    record = record.model_copy(update={"cause": cause, "evidence": evidence})
    write_attempt(prepared.store, record)
    prepared.attempts = [*prepared.attempts, record]
    if not isinstance(prepared.store, LocalStore) and log.exists():
        prepared.store.publish(f"{LOGS}/{log.name}", log.read_bytes(), replace=True)
