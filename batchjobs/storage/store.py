"""The output folder as a store of whole files: a name appears complete or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from batchjobs.data.filesystem import open_url, scheme_of
from batchjobs.data.listing import is_local
from batchjobs.errors import OutputError
from batchjobs.storage.failures import storage_errors
from batchjobs.storage.object_store import ObjectStore

TMP = "_batchjobs/tmp"
_READ_ONLY = ("hf", "http", "https")  # writing is a commit to a repository, or not possible at all


class Store(Protocol):
    """Names are relative to the output folder and use `/`. Everything raises StorageFailed, an OSError."""

    url: str

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """Put a whole file there; False if the name was taken (and `replace` is not set), then nothing changed."""

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or None if there is no such file."""

    def names(self, folder: str = "") -> list[str]:
        """Names of the files and folders directly in a folder, sorted, always from the storage itself."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there is no error."""

    def open(self, name: str) -> AbstractContextManager[Any]:
        """A seekable binary file for reading."""


def open_store(path: str, storage_options: dict[str, Any] | None = None) -> Store:
    """The store at a local path or any fsspec URL; raises OutputError for one that cannot be opened or written."""
    if scheme_of(path) in _READ_ONLY:
        raise OutputError(f"The output {path} cannot be used: {scheme_of(path)}:// is for input only. Use another.")
    try:
        fs, root = open_url(path, storage_options or {})
    except (ValueError, ImportError) as error:
        raise OutputError(f"The output {path} cannot be opened: {error}") from error
    return LocalStore(Path(root)) if is_local(fs) else ObjectStore(fs, root, path)


class LocalStore:
    """A folder of a POSIX filesystem. `link` is what makes "create if absent" atomic; fsync what makes it last."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._lasting: set[Path] = set()  # folders whose names this process has brought to the disk

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """See Store. When it fails (disk full, permission), nothing is visible under the name, or all of it."""
        final = self.root / name
        temporary = self.root / TMP / f"{final.name}.{uuid.uuid4().hex}"
        with storage_errors("write", final):
            self.make_folder(temporary.parent)
            self.make_folder(final.parent)
            try:
                _write_durably(temporary, data)
                if not _put_in_place(temporary, final, replace):
                    return False
            finally:
                with suppress(OSError):  # what stays is swept at the next start; it must not hide the real failure
                    os.unlink(temporary)
            _sync_folder(final.parent)
        return True

    def make_folder(self, folder: Path) -> None:
        """Make a folder that lasts. One that is there may come from a run that was killed before it did."""
        there = folder.is_dir()
        if there and folder in self._lasting:
            return
        if not there:
            self.make_folder(folder.parent)
            with suppress(FileExistsError):
                os.mkdir(folder)
        if not there or self.root in folder.parents:  # what was above the output before us is not ours to read
            _sync_folder(folder.parent)
        self._lasting.add(folder)

    def read(self, name: str) -> bytes | None:
        """See Store."""
        with storage_errors("read", self.root / name), suppress(FileNotFoundError), _reading(self.root / name) as file:
            data: bytes = file.read()
            return data
        return None

    def names(self, folder: str = "") -> list[str]:
        """See Store."""
        with storage_errors("list", self.root / folder), suppress(FileNotFoundError):
            return sorted(os.listdir(self.root / folder))
        return []

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for name in names:
            with storage_errors("delete", self.root / name), suppress(FileNotFoundError):
                os.unlink(self.root / name)

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """See Store."""
        with storage_errors("read", self.root / name), _reading(self.root / name) as stream:
            yield stream


def _write_durably(file: Path, data: bytes | memoryview) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(temporary: Path, final: Path, replace: bool) -> bool:
    """Make the finished file visible under its name, in one step; False if the name is taken."""
    if replace:
        os.replace(temporary, final)
        return True
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reading(file: Path) -> Any:
    return os.fdopen(os.open(file, os.O_RDONLY), "rb")
