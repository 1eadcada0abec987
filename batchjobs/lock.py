"""One runner per output folder, on local disk: an flock that the kernel frees when its last possible writer is gone."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from batchjobs.errors import OutputError
from batchjobs.output import LOCK
from batchjobs.store import LocalStore, Store

_PATIENCE = 5.0  # seconds: how long a killed run's replica may take to notice and die


class OutputLock:
    """Holds the output folder until `release`, or until this process and its replicas are gone."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor  # handed to replicas, so that the lock outlives a killed parent as long as they do

    def release(self) -> None:
        """Let the next runner in."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def acquire(store: Store) -> OutputLock:
    """Take the lock; raises OutputError that says who holds it. An object store has none: its parts are create-only."""
    if not isinstance(store, LocalStore):
        return OutputLock(None)
    file = store.root / LOCK
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + _PATIENCE
    while not _try(descriptor):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise OutputError(
                f"The output {store.url} is in use by {_holder(file)}. Nothing was changed; wait for it, or stop it."
            )
        time.sleep(0.1)
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(_myself()).encode(), 0)
    return OutputLock(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _myself() -> dict[str, str | int]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}


def _holder(file: Path) -> str:
    try:
        who = json.loads(file.read_text())
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError):
        return "another process"
