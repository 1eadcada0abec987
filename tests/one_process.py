"""A whole job in this one process: its replica is a thread, nothing waits, and only the storage is real."""

from __future__ import annotations

import json
import queue
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from batchjobs.planning import plan
from batchjobs.replica import wiring
from batchjobs.replica.assignment import Assignment
from batchjobs.settings import history, profiles
from batchjobs.settings.device import Device
from batchjobs.storage import journal, lease, lock
from batchjobs.supervision import life, lives, prepared
from schemas.summary import Memory


class ReplicaHere:
    """A replica as a thread of this process, seen from both sides: as its dispatcher and as its own code see it."""

    pid = 0
    stop_by = None
    started = 0.0

    def __init__(self, python: str, environment: Any, log: Path, locks: list[int], assignment: Assignment) -> None:
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._shards: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._assignment = Assignment.model_validate_json(assignment.model_dump_json())
        self._code = 1
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        commands: Any = self
        events: Any = _Events(self.events)
        with suppress(SystemExit):
            wiring.live(self._assignment, commands, events)
            self._code = 0
        self.events.put({"kind": "end"})

    def next_shard(self) -> int | None:
        self.events.put({"kind": "ask"})
        return self._shards.get()

    def send(self, kind: str, **fields: Any) -> None:
        if kind == "shard":
            self._shards.put(fields["shard"])

    def wait(self) -> int:
        return self._code

    def kill(self) -> None:
        """It has ended by itself."""

    def held_s(self) -> float:
        return 1.0

    def peak_memory(self) -> Memory:
        return Memory()

    def important_lines(self) -> list[str]:
        return []


class _Events:
    def __init__(self, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
        self._inbox = inbox

    def send(self, kind: str, **fields: Any) -> None:
        self._inbox.put(json.loads(json.dumps({"kind": kind, "at": 0.5, **fields})))


def in_one_process(patch: pytest.MonkeyPatch, state: Path) -> None:
    """Jobs run in this process from now on, flush the journal at once, and wait for nobody."""
    patch.setenv("XDG_STATE_HOME", str(state))
    patch.setattr(life, "ReplicaProcess", ReplicaHere)
    patch.setattr(life.Life, "log_tail", lambda self: [])
    patch.setattr(lock, "remove_marked", lambda mark: 0)
    patch.setattr(lives, "kernel_oom_kills", lambda: 0)
    patch.setattr(profiles, "find_device", lambda job: Device("cpu"))
    patch.setattr(history, "find_device", lambda job: Device("cpu"))
    patch.setattr(plan, "versions", lambda: {"batchjobs": "1"})
    patch.setattr(prepared, "versions", lambda: {"batchjobs": "1"})
    patch.setattr(life, "versions", lambda: {"batchjobs": "1"})
    patch.setattr(journal, "_FLUSH_S", 0.0)
    patch.setattr(lease, "RENEW_S", 1000.0)
    patch.setattr(lease, "TAKEOVER_S", 0.01)
    patch.setattr(lease, "LOOK_S", 0.01)
