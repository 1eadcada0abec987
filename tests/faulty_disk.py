"""A disk with faults: the `os` module for `store.py` and `lock.py`, with a model of what a power cut takes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batchjobs.storage import lock, store
from batchjobs.storage.output import LOCK, WRITERS
from tests.faults import Act, Faults, nothing, short


class Volatile:
    """What a power cut takes: contents of files since their last fsync, names in a folder since that folder's."""

    def __init__(self) -> None:
        self._undo: list[tuple[Path, Act]] = []  # what must be synced to keep it, and how it is lost
        self._kept: list[int] = []  # descriptors of written files, whatever their names are by now

    def written(self, file: Path, descriptor: int) -> None:
        """Something was written to a file."""
        kept = os.dup(descriptor)
        self._kept.append(kept)
        self._undo.append((file, lambda: os.truncate(kept, 0)))

    def named(self, path: Path, was: bytes | None = None) -> None:
        """A name in a folder came, went or got another file; `was` is what it stood for, None for nothing."""
        self._undo.append((path.parent, lambda: _put_back(path, was)))

    def synced(self, path: Path) -> None:
        """An fsync of this file or folder is done."""
        self._undo = [(where, undo) for where, undo in self._undo if where != path]

    def lose(self) -> None:
        """The power is cut, at the worst moment: nothing reached the disk that was not forced to."""
        for _, undo in reversed(self._undo):
            undo()

    def close(self) -> None:
        """No more power cuts."""
        for descriptor in self._kept:
            os.close(descriptor)


def _put_back(path: Path, was: bytes | None) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if was is not None and path.parent.is_dir():
        path.write_bytes(was)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


class FaultyOs:
    """The `os` module as `store.py` and `lock.py` see it."""

    def __init__(self, faults: Faults) -> None:
        self._do, self._volatile = faults.do, Volatile()
        faults.power_cut = self._volatile.lose
        self._paths: dict[int, Path] = {}  # of open descriptors

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        new = bool(flags & os.O_CREAT) and not path.exists()
        descriptor: int = self._do(f"{'create' if new else 'open'} {short(path)}", lambda: os.open(path, flags, mode))
        self._paths[descriptor] = path
        if new:
            self._volatile.named(path)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        os.close(descriptor)

    def end(self) -> None:
        """What the kernel does for a dead process: its locks are free."""
        self._volatile.close()
        for descriptor in [number for number, path in self._paths.items() if str(path).endswith((LOCK, WRITERS))]:
            self.close(descriptor)

    def write(self, descriptor: int, data: memoryview) -> Any:
        path, half = self._paths[descriptor], data[: len(data) // 2]
        self._volatile.written(path, descriptor)
        return self._do(f"write {short(path)}", lambda: os.write(descriptor, data), lambda: os.write(descriptor, half))

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> Any:
        path, half = self._paths[descriptor], data[: len(data) // 2]
        self._volatile.written(path, descriptor)
        return self._do(
            f"write {short(path)}",
            lambda: os.pwrite(descriptor, data, offset),
            lambda: os.pwrite(descriptor, half, offset),
        )

    def fsync(self, descriptor: int) -> None:  # the real thing would only cost time: what it is for is in Volatile
        path = self._paths[descriptor]
        self._do(f"fsync {short(path)}", nothing)
        self._volatile.synced(path)

    def truncate(self, descriptor: int, length: int) -> None:
        self._do(f"truncate {short(self._paths[descriptor])}", lambda: os.truncate(descriptor, length))

    def link(self, source: Path, target: Path) -> None:
        self._do(f"link {short(target)}", lambda: os.link(source, target))
        self._volatile.named(target)

    def replace(self, source: Path, target: Path) -> None:
        was = _content(target)
        self._do(f"replace {short(target)}", lambda: os.replace(source, target))
        self._volatile.named(target, was)

    def unlink(self, path: Path) -> None:
        was = _content(path)
        self._do(f"unlink {short(path)}", lambda: os.unlink(path))
        self._volatile.named(path, was)

    def mkdir(self, path: Path) -> None:
        self._do(f"mkdir {short(path)}", lambda: os.mkdir(path))
        self._volatile.named(path)

    def listdir(self, path: Path) -> Any:
        return self._do(f"list {short(path)}", lambda: os.listdir(path))


@contextmanager
def faulty_disk(faults: Faults) -> Iterator[None]:
    """Faults on local disk, until the process is gone."""
    faulty = FaultyOs(faults)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "os", faulty)
        patch.setattr(lock, "os", faulty)
        yield
        faulty.end()
