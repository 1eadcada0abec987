"""Storage that fails on purpose: at one chosen operation the process dies, the operation fails, or its answer is lost.

Faults are injected where the product meets the storage: the `os` functions that LocalStore and the lock use
(`faulty_disk.py`), and the fsspec filesystem under ObjectStore (`faulty_objects.py`). A whole job runs in one process
(`one_process.py`), and one thread of it dies for all: from the crash on, nothing that any thread does reaches the
storage.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

Kind = Literal["crash", "power cut", "short write", "failure", "lost answer"]
Act = Callable[[], Any]


class Crash(BaseException):
    """The process is dead."""


def nothing() -> None:
    """Do nothing."""


class Faults:
    """Counts storage operations and strikes at the `at`-th one that its kind can hit, counted from 1."""

    def __init__(self, kind: Kind = "crash", at: int = 0) -> None:
        self.operations: list[str] = []
        self.counted = 0
        self.struck: str | None = None
        self.committed: set[int] = set()  # shards that the product was told are safe
        self.power_cut: Act = nothing  # undoes what a power cut would undo
        self._kind, self._at = kind, at
        self._dead = False
        self._lock = threading.Lock()

    def do(self, operation: str, act: Act, half: Act = nothing) -> Any:
        """One operation of the storage. `half` does the first half of it."""
        with self._lock:
            if self._dead:
                raise Crash
            self.operations.append(operation)
            hit = self._can_hit(operation)
            self.counted += hit
            if not hit or self.counted != self._at:
                return act()
            self.struck = operation
            return self._strike(operation, act, half)

    def _strike(self, operation: str, act: Act, half: Act) -> Any:
        if self._kind == "failure":
            raise OSError(errno.ENOSPC, f"injected at {operation}")
        if self._kind == "lost answer":
            act()
            raise OSError(errno.ETIMEDOUT, f"injected after {operation}")
        if self._kind == "short write":
            half()
        if self._kind == "power cut":
            self.power_cut()
        self._dead = True
        raise Crash(operation)

    def _can_hit(self, operation: str) -> bool:
        """Every operation can fail; only data can be cut short; to die at a read is to die at the next change."""
        verb = operation.split()[0]
        if self._kind == "short write":
            return verb in ("write", "put")
        return self._kind == "failure" or verb not in ("open", "list", "get")


def short(path: Any) -> str:
    """The last two names of a path, without what makes a temporary file's name unique."""
    folder, name = Path(path).parts[-2:]
    return f"{folder}/{name.rsplit('.', 1)[0] if folder == 'tmp' else name}"
