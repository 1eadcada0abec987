"""The output folder as a store of whole files: a name appears complete or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import fsspec
from fsspec.implementations.local import LocalFileSystem

TMP = "_batchjobs/tmp"


class Store(Protocol):
    """Names are relative to the output folder and use `/`."""

    url: str

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """Put a whole file there; False if the name was taken (and `replace` is not set), then nothing changed."""

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or None if there is no such file."""

    def names(self, folder: str = "") -> list[str]:
        """Names of the files and folders directly in a folder, sorted, always from the storage itself."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there is no error."""

    def open(self, name: str) -> Any:
        """A seekable binary file for reading."""


def open_store(path: str, storage_options: dict[str, Any] | None = None) -> Store:
    """The store at a local path or any fsspec URL."""
    fs, root = fsspec.url_to_fs(path, **(storage_options or {}))
    return LocalStore(Path(root)) if isinstance(fs, LocalFileSystem) else ObjectStore(fs, root, path)


class LocalStore:
    """A folder of a POSIX filesystem. `link` is what makes "create if absent" atomic; fsync what makes it last."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """See Store. Raises OSError (disk full, permission) with nothing visible under the name."""
        final = self.root / name
        temporary = self.root / TMP / f"{final.name}.{uuid.uuid4().hex}"
        _make_folder(temporary.parent)
        _make_folder(final.parent)
        try:
            _write_durably(temporary, data)
            if replace:
                os.replace(temporary, final)
            else:
                os.link(temporary, final)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(final.parent)
        return True

    def read(self, name: str) -> bytes | None:
        """See Store."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str = "") -> list[str]:
        """See Store."""
        try:
            return sorted(os.listdir(self.root / folder))
        except FileNotFoundError:
            return []

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def open(self, name: str) -> Any:
        """See Store."""
        return (self.root / name).open("rb")


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _write_durably(file: Path, data: bytes | memoryview) -> None:
    with file.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectStore:
    """Any other fsspec filesystem: one put of the whole object, create-if-absent where the store knows it.

    Never `with fs.open(...)`: leaving that block by an exception may publish half a file.
    """

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.url = url

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """See Store."""
        with suppress(NotImplementedError):
            self._fs.makedirs(
                self._fs._parent(self._path(name)), exist_ok=True
            )  # nothing to do on S3; memory:// wants it
        try:
            self._fs.pipe_file(self._path(name), bytes(data), mode="overwrite" if replace else "create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """See Store."""
        try:
            data: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return data

    def names(self, folder: str = "") -> list[str]:
        """See Store. fsspec's cached listing may be older than what we or others just wrote."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in found if path.rstrip("/") != self._path(folder))

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def open(self, name: str) -> Any:
        """See Store."""
        return self._fs.open(self._path(name), "rb")
