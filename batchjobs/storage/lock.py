"""One runner per output folder: two flocks on local disk, a lease on an object store (`lease.py`).

The kernel frees an flock when its last holder is gone: no clock, no process number, and a runner that is stopped is
still the holder. The first lock is the runner's alone: whoever has it knows that replicas still there are orphans, and
ends them (a frozen one would never notice by itself). The second is inherited by replicas, so it is free when the last
possible writer is gone, on whatever machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from batchjobs.errors import OutputError
from batchjobs.leftovers import mark_of, remove_marked
from batchjobs.storage.failures import storage_errors
from batchjobs.storage.lease import Lease, described, myself, take
from batchjobs.storage.output import LOCK, WRITERS
from batchjobs.storage.store import LocalStore, Store

_PATIENCE = 5.0  # seconds: how long a killed run's replica may take to notice and die


class OutputLock:
    """Holds the output until `release`, or until this process and its replicas are gone."""

    def __init__(self, runner: int | None = None, writers: int | None = None, lease: Lease | None = None) -> None:
        self.descriptor = writers  # handed to replicas, so that the lock outlives a killed parent as long as they do
        self._runner, self._lease = runner, lease

    @property
    def epoch(self) -> int | None:
        """What `lease.fenced` wants to know, here and in replicas; None on local disk, where no fence is needed."""
        return None if self._lease is None else self._lease.epoch

    def release(self) -> None:
        """Let the next runner in. May be called again."""
        for descriptor in (self.descriptor, self._runner):
            if descriptor is not None:
                os.close(descriptor)
        self.descriptor = self._runner = None
        if self._lease is not None:
            self._lease.release()


def acquire(store: Store) -> OutputLock:
    """Take the output, and end what an earlier runner left behind. Raises OutputError that says who holds it."""
    lock = OutputLock(runner=_locked(store, LOCK)) if isinstance(store, LocalStore) else OutputLock(lease=take(store))
    try:
        remove_marked(mark_of(store.url))
        if isinstance(store, LocalStore):
            lock.descriptor = _locked(store, WRITERS)
    except TimeoutError as problem:
        lock.release()
        raise OutputError(f"The output {store.url} is not free: {problem}. Nothing was changed.") from problem
    except BaseException:
        lock.release()
        raise
    return lock


def _locked(store: LocalStore, name: str) -> int:
    file = store.root / name
    with storage_errors("lock", file):
        store.make_folder(file.parent)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _wait_for(descriptor, file, store.url)
        except BaseException:
            os.close(descriptor)
            raise
    with suppress(OSError):  # who holds it is for people; on a full disk, the next write says so
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(myself()).encode(), 0)
    return descriptor


def _wait_for(descriptor: int, file: Path, output: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not _try(descriptor):
        if time.monotonic() > deadline:
            who = described(_holder(file))
            raise OutputError(f"The output {output} is in use by {who}. Nothing was changed; wait for it, or stop it.")
        time.sleep(0.1)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: Path) -> object:
    with suppress(OSError, ValueError):
        return json.loads(file.read_text())
    return None
