"""One runner per output folder, on an object store: a lease that its holder renews and a successor may take over.

`lease/<epoch>.json` is made create-if-absent; the highest epoch holds, and only its holder rewrites it. Whoever wants
the output watches that file on a clock of its own: as soon as it changes, the holder lives; if it stood still for
`TAKEOVER_S`, the watcher makes the next epoch. No clock is compared with another, no process is looked up.

A holder that was stopped and wakes up finds a higher epoch before its next write (`fenced`). The lease saves money;
that nothing is done twice rests on parts that can be created only once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Any

from batchjobs.errors import LeaseLost, OutputError
from batchjobs.storage.output import LEASE
from batchjobs.storage.store import Store

logger = logging.getLogger("batchjobs.lease")

RENEW_S = 5.0  # between signs of life
TAKEOVER_S = 60.0  # without one, the holder is gone
LOOK_S = 1.0  # between looks at another's lease


def myself() -> dict[str, str | int]:
    """Who runs here, for a person who is told that the output is in use."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}


def described(holder: Any) -> str:
    """`holder`, as `myself` made it, in words."""
    try:
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (KeyError, TypeError):
        return "another process"


class Lease:
    """An epoch of ours, renewed by a thread until `release`, or until somebody took over."""

    def __init__(self, store: Store, epoch: int) -> None:
        self.epoch = epoch
        self._store, self._name, self._nonce = store, _name(epoch), uuid.uuid4().hex
        self._holder = myself()
        self._counter = 0
        self._ended = threading.Event()
        self._writing = threading.Lock()

    def begin(self) -> bool:
        """Make the epoch; False if somebody else was first."""
        self._store.publish(self._name, self._content())
        # Not the answer but what is there now decides: the put may have been repeated below us, or overwritten.
        if not self._is_ours() or _epochs(self._store)[-1:] != [self.epoch]:
            return False
        threading.Thread(target=self._renew, name="lease", daemon=True).start()
        return True

    def _content(self, released: bool = False) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        state = {"nonce": self._nonce, "counter": self._counter, "released": released, "renewed": now}
        return json.dumps({**state, "holder": self._holder}).encode()

    def _is_ours(self) -> bool:
        return _parsed(self._store.read(self._name)).get("nonce") == self._nonce

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                self._sign()
            except OSError as problem:  # the storage may come back before anybody takes over
                logger.warning("The lease of the output could not be renewed: %s.", problem)

    def _sign(self, released: bool = False) -> None:
        with self._writing:
            if self._ended.is_set() and not released:
                return
            if not self._is_ours():  # taken over: the fence tells whoever wants to write
                self._ended.set()
                return
            self._counter += 1
            self._store.publish(self._name, self._content(released), replace=True)

    def release(self) -> None:
        """Let the next runner in at once. If the storage does not take that, it has to wait for TAKEOVER_S."""
        if not self._ended.is_set():
            self._ended.set()
            with suppress(OSError):
                self._sign(released=True)


def take(store: Store) -> Lease:
    """The lease of an output. Waits up to TAKEOVER_S for a holder that may be dead; raises OutputError if it lives."""
    while True:
        epochs = _epochs(store)
        if epochs:
            _wait_until_free(store, epochs[-1])
        lease = Lease(store, max(epochs, default=0) + 1)
        try:
            if lease.begin():
                store.delete(_name(epoch) for epoch in epochs)
                return lease
        except BaseException:
            lease.release()
            raise


def _wait_until_free(store: Store, epoch: int) -> None:
    """Returns when the holder released the epoch, or gave no sign of life for TAKEOVER_S."""
    first, deadline = store.read(_name(epoch)), time.monotonic() + TAKEOVER_S
    if _is_free(first):
        return
    who = described(_parsed(first).get("holder"))
    logger.warning("%s is held by %s: waiting up to %.0f s for a sign of life.", store.url, who, TAKEOVER_S)
    while True:
        late = time.monotonic() >= deadline  # before the look: a watcher that was stopped itself must look once more
        now = store.read(_name(epoch))
        if _is_free(now):
            return
        if now != first:
            raise OutputError(
                f"The output {store.url} is in use by {who}. Nothing was changed; wait for it, or stop it."
            )
        if late:
            return
        time.sleep(LOOK_S)


def _is_free(data: bytes | None) -> bool:
    """Released, or removed by the holder of a later epoch, which the next look will find."""
    return data is None or bool(_parsed(data).get("released"))


def _name(epoch: int) -> str:
    return f"{LEASE}/{epoch:06d}.json"


def _epochs(store: Store) -> list[int]:
    """The epochs that were made, in order."""
    names = [name.removesuffix(".json") for name in store.names(LEASE)]
    return sorted(int(name) for name in names if name.isdigit())


def _parsed(data: bytes | None) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(data or b"")
        if isinstance(found, dict):
            return found
    return {}


def is_held(store: Store) -> bool:
    """Whether the lease was renewed lately, by the holder's clock: enough to tell people, not to decide anything."""
    found = _parsed(store.read(_name(max(_epochs(store), default=0))))
    if not found or found.get("released"):
        return False
    with suppress(KeyError, ValueError, TypeError):
        return (datetime.now(UTC) - datetime.fromisoformat(found["renewed"])).total_seconds() < TAKEOVER_S
    return False


def fenced(store: Store, epoch: int | None) -> Store:
    """The store for the holder of an epoch: it raises LeaseLost instead of a write once there is a later epoch."""
    return store if epoch is None else _FencedStore(store, epoch)


class _FencedStore:
    def __init__(self, store: Store, epoch: int) -> None:
        self._store, self._epoch, self.url = store, epoch, store.url

    def _check(self) -> None:
        latest = max(_epochs(self._store), default=0)
        if latest > self._epoch:
            who = described(_parsed(self._store.read(_name(latest))).get("holder"))
            raise LeaseLost(
                f"The output {self.url} was taken over by {who}, because this run gave no sign of life for "
                f"{TAKEOVER_S:.0f} s. This run writes nothing more; what it had committed stays"
            )

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """See Store."""
        self._check()
        return self._store.publish(name, data, replace)

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        names = list(names)
        if names:
            self._check()
            self._store.delete(names)

    def read(self, name: str) -> bytes | None:
        """See Store."""
        return self._store.read(name)

    def names(self, folder: str = "") -> list[str]:
        """See Store."""
        return self._store.names(folder)

    def open(self, name: str) -> AbstractContextManager[Any]:
        """See Store."""
        return self._store.open(name)
