"""One attempt's outside: how its process is started, where it logs, and the record that it leaves behind."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from batchjobs.attempts import renewed, write_attempt
from batchjobs.causes import Cause
from batchjobs.errors import StorageFailed
from batchjobs.figures import AttemptFigures
from batchjobs.leftovers import MARK, mark_of
from batchjobs.output import LOGS, PROGRESS
from batchjobs.plan import versions, warn_of_versions
from batchjobs.prepared import PreparedJob
from batchjobs.process import ReplicaProcess, last_lines
from batchjobs.progress import Progress
from batchjobs.remedies import Remedy, Settings, with_settings
from batchjobs.sizing import merged
from batchjobs.store import LocalStore, storage_errors
from batchjobs.suspects import Suspects
from schemas.summary import Attempt

logger = logging.getLogger("batchjobs")

_HEARTBEAT_S = 3.0  # between writes of progress.json and of the attempt's record
_TAIL_LINES = 200  # of the log, to find the cause
_EVIDENCE_LINES = 20  # of the log, kept in the record
_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "SPT_NOENV": "1",  # vLLM renames its processes; without this the mark would be overwritten
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}


class Life:
    """An attempt, from its start to its record's end."""

    def __init__(self, prepared: PreparedJob, figures: AttemptFigures, settings: Settings, suspects: Suspects) -> None:
        self._prepared, self._figures, self._suspects = prepared, figures, suspects
        self._learnt, self._settings = settings, merged(prepared.sizing, settings)
        self._log = Path()
        self._next_beat, self._warned = 0.0, False
        self._record = self._new_record()

    def _new_record(self) -> Attempt:
        engine = self._prepared.job.engine.model_dump(mode="json", exclude_defaults=True, exclude={"env", "echo"})
        price = self._prepared.job.cost.usd_per_hour if self._prepared.job.cost else None
        return Attempt(
            replica=0,
            attempt=self._figures.number,
            started=datetime.now(UTC),
            usd_per_hour=price,
            settings={**engine, **self._settings},
            versions=versions(),
        )

    @contextmanager
    def log_folder(self) -> Iterator[None]:
        """Logs go to the output folder, or to a temporary one that is uploaded by `close`."""
        with tempfile.TemporaryDirectory(prefix="batchjobs-") as temporary:
            store = self._prepared.store
            folder = store.root / LOGS if isinstance(store, LocalStore) else Path(temporary)
            with storage_errors("write", folder):
                folder.mkdir(parents=True, exist_ok=True)
            self._log = folder / f"{self._figures.number:04d}.log"
            yield

    def start(self) -> ReplicaProcess:
        """Start the process. Its settings are the job's with what earlier deaths have taught over them."""
        prepared = self._prepared
        write_attempt(prepared.store, self._record)
        job = with_settings(prepared.resolved, self._settings)
        own = prepared.resolved.model.max_model_len if prepared.resolved.model is not None else None
        order = {
            "job": job.model_dump(mode="json"),
            "plan": prepared.plan.model_dump_json(),
            "paths": prepared.paths,
            "attempt": self._figures.number,
            "epoch": prepared.lock.epoch,
            "context_chosen": "max_model_len" in self._settings,
            "own_max_model_len": own if isinstance(own, int) else None,
            "lowered": self._learnt.get("max_model_len", 0) == self._settings.get("max_model_len"),
            "groups": self._suspects.groups(),
            "quarantined": {str(row): words for row, words in self._suspects.quarantined.items()},
            "has_worked": any(commit.ok for commit in prepared.earlier),
            "retry": sorted(prepared.retry),
            "retried_shards": prepared.left if prepared.retry else [],
        }
        environment = {**_ENVIRONMENT, **os.environ, **job.engine.env, MARK: mark_of(prepared.store.url)}
        return ReplicaProcess(
            job.engine.python or sys.executable, environment, self._log, prepared.lock.descriptor, order
        )

    def heartbeat(self, now: Progress) -> None:
        """Renew progress.json and the record every few seconds: what a killed run leaves behind."""
        self._renew()
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + _HEARTBEAT_S
            with self._worth_a_warning():
                self._prepared.store.publish(PROGRESS, now.model_dump_json().encode(), replace=True)
                write_attempt(self._prepared.store, self._record)

    @contextmanager
    def _worth_a_warning(self) -> Iterator[None]:
        """What is for people only, and cannot be stored, is no reason to fail a run whose parts can be."""
        try:
            yield
        except StorageFailed as problem:
            if not self._warned:
                logger.warning("Progress and attempt records are not stored: %s. The run goes on.", problem)
            self._warned = True

    def _renew(self) -> None:
        figures = self._figures
        self._record = renewed(self._record, figures.held_s, figures.answered)
        if figures.engine and "engine" not in self._record.versions:
            version = figures.engine["version"]
            earlier = {a.versions["engine"] for a in self._prepared.attempts if "engine" in a.versions}
            warn_of_versions("engine", earlier, version)
            self._record = self._record.model_copy(update={"versions": {**self._record.versions, "engine": version}})

    def log_tail(self) -> list[str]:
        """The last lines of the log."""
        return last_lines(self._log, _TAIL_LINES)

    def close(self, cause: Cause, remedy: Remedy | None) -> None:
        """Write the record's end, and the log where it is not yet."""
        self._renew()
        ended_well = cause in (Cause.DONE, Cause.STOPPED)
        self._record = self._record.model_copy(
            update={
                "cause": str(cause),
                "failure": self._figures.failure,
                "notes": self._figures.notes,
                "evidence": [] if ended_well else self.log_tail()[-_EVIDENCE_LINES:],
                "remedy": remedy.reason if remedy is not None else None,
                "quarantined": dict(self._suspects.confirmed),
            }
        )
        self._suspects.confirmed.clear()
        self._prepared.attempts = [*self._prepared.attempts, self._record]
        with self._worth_a_warning():
            write_attempt(self._prepared.store, self._record)
            if not isinstance(self._prepared.store, LocalStore) and self._log.exists():
                self._prepared.store.publish(f"{LOGS}/{self._log.name}", self._log.read_bytes(), replace=True)
