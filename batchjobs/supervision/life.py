"""One attempt's outside: how its process is started, where it logs, and the record that it leaves behind."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from batchjobs.accounts.figures import AttemptFigures
from batchjobs.leftovers import ATTEMPT, DEVICES, MARK, mark_of
from batchjobs.planning.plan import versions, warn_of_versions
from batchjobs.replica.assignment import Assignment
from batchjobs.settings.device import find_device
from batchjobs.settings.devices import Placement
from batchjobs.settings.in_force import Settings, with_settings
from batchjobs.settings.sizing import merged
from batchjobs.storage.attempts import renewed, write_attempt
from batchjobs.storage.best_effort import BestEffort
from batchjobs.storage.failures import storage_errors
from batchjobs.storage.output import LOGS
from batchjobs.storage.store import LocalStore
from batchjobs.supervision.causes import Cause
from batchjobs.supervision.prepared import PreparedJob
from batchjobs.supervision.process import ReplicaProcess, last_lines
from batchjobs.supervision.remedies import Remedy
from batchjobs.supervision.suspects import Suspects
from schemas.summary import Attempt

_HEARTBEAT_S = 3.0  # between writes of the record
_LONGEST_FOLDER = 64  # characters; with the name that vLLM makes, a socket's may have 107
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

    def __init__(
        self,
        prepared: PreparedJob,
        figures: AttemptFigures,
        learnt: Settings,
        suspects: Suspects,
        placement: Placement,
        best_effort: BestEffort,
    ) -> None:
        self._prepared, self._figures, self._suspects = prepared, figures, suspects
        # Over the job's own: what was decided, what follows from the place, and what deaths have taught.
        self._learnt, self.settings = learnt, merged(prepared.sizing, {**placement.settings, **learnt})
        self._placement, self._best_effort = placement, best_effort
        self._log, self._temporary = Path(), ""
        self._next_beat = 0.0
        self._record = self._new_record()

    def _new_record(self) -> Attempt:
        engine = self._prepared.job.engine.model_dump(mode="json", exclude_defaults=True, exclude={"env", "echo"})
        price = self._prepared.job.cost.usd_per_hour if self._prepared.job.cost else None
        return Attempt(
            replica=self._figures.replica,
            attempt=self._figures.number,
            started=datetime.now(UTC),
            usd_per_hour=price,
            device=find_device(self._prepared.resolved).name if self._prepared.job.engine.kind != "echo" else None,
            settings={**engine, **self.settings},
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
            self._temporary = temporary
            yield

    def start(self) -> ReplicaProcess:
        """Start the process. Its settings are the job's with what earlier deaths have taught over them."""
        prepared = self._prepared
        write_attempt(prepared.store, self._record)
        job = with_settings(prepared.resolved, self.settings)
        own = prepared.resolved.model.max_model_len if prepared.resolved.model is not None else None
        assignment = Assignment(
            job=job,
            plan=prepared.plan,
            paths=prepared.paths,
            attempt=self._figures.number,
            cores=self._placement.cores,
            epoch=prepared.lock.epoch,
            context_chosen="max_model_len" in self.settings,
            own_max_model_len=own if isinstance(own, int) else None,
            lowered=self._learnt.get("max_model_len", 0) == self.settings.get("max_model_len"),
            groups=self._suspects.groups(),
            quarantined=self._suspects.quarantined,
            lengths=prepared.lengths.plain(),
            has_worked=any(commit.ok for commit in prepared.earlier),
            retry=sorted(prepared.retry),
            retried_shards=prepared.left if prepared.retry else [],
        )
        environment = {
            **_ENVIRONMENT,
            **self._place_of_sockets(),
            **os.environ,
            **job.engine.env,
            **self._placement.environment,  # follows from the job's own, if that says which GPUs
            MARK: mark_of(prepared.store.url),
            ATTEMPT: str(self._figures.number),
            DEVICES: prepared.devices.names,
        }
        descriptor = prepared.lock.descriptor
        locks = [*([] if descriptor is None else [descriptor]), *prepared.devices.inherited]
        return ReplicaProcess(job.engine.python or sys.executable, environment, self._log, locks, assignment)

    def _place_of_sockets(self) -> dict[str, str]:
        """A killed vLLM leaves its sockets behind: here, they go with the life. The kernel wants short names."""
        return {"VLLM_RPC_BASE_PATH": self._temporary} if len(self._temporary) <= _LONGEST_FOLDER else {}

    def heartbeat(self) -> None:
        """Renew the record every few seconds: what a killed run leaves behind."""
        self._renew()
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + _HEARTBEAT_S
            with self._best_effort.write():
                write_attempt(self._prepared.store, self._record)

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
                "quarantined": self._suspects.take_confirmed(),
            }
        )
        self._prepared.attempts.append(self._record)
        with self._best_effort.write():
            write_attempt(self._prepared.store, self._record)
            if not isinstance(self._prepared.store, LocalStore) and self._log.exists():
                self._prepared.store.publish(f"{LOGS}/{self._log.name}", self._log.read_bytes(), replace=True)
