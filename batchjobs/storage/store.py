"""The output folder as a store of whole files: a name appears complete or not at all."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import fsspec
from fsspec.implementations.local import LocalFileSystem

from batchjobs.errors import BatchjobsError, OutputError, StorageFailed

TMP = "_batchjobs/tmp"
_CONFLICT_S = 0.2  # before a create that met another one is tried again


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
    """The store at a local path or any fsspec URL; raises OutputError for one that fsspec does not know."""
    try:
        fs, root = fsspec.url_to_fs(path, **(storage_options or {}))
    except (ValueError, ImportError) as error:
        raise OutputError(f"The output {path} cannot be opened: {error}") from error
    return LocalStore(Path(root)) if isinstance(fs, LocalFileSystem) else ObjectStore(fs, root, path)


@contextmanager
def storage_errors(doing: str, where: str | Path) -> Iterator[None]:
    """Whatever the storage raises becomes a sentence that says what failed and where.

    Each filesystem raises its own kinds. What is raised about the content of a file (ValueError, KeyError) passes.
    """
    try:
        yield
    except (BatchjobsError, ValueError, KeyError, MemoryError):
        raise
    except Exception as problem:
        told = problem.strerror if isinstance(problem, OSError) else None
        raise StorageFailed(f"cannot {doing} {where}: {told or f'{type(problem).__name__}: {problem}'}") from problem


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


class ObjectStore:
    """Any other fsspec filesystem: one put of the whole object, create-if-absent where the store knows it.

    Never `with fs.open(...)` to write: leaving that block by an exception may publish half a file.
    """

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.url = url.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def publish(self, name: str, data: bytes | memoryview, replace: bool = False) -> bool:
        """See Store."""
        with storage_errors("write", f"{self.url}/{name}"):
            return self._put(self._path(name), bytes(data), "overwrite" if replace else "create")

    def _put(self, path: str, data: bytes, mode: str, tries: int = 5) -> bool:
        try:
            self._pipe(path, data, mode)
        except FileExistsError:
            return False
        except OSError as problem:
            code = _s3_code(problem)
            if code == "PreconditionFailed" and mode == "create":  # s3fs translates AWS's answer, but not MinIO's
                return False
            if code == "ConditionalRequestConflict" and tries > 1:  # two creates at the same moment: S3 says try again
                time.sleep(_CONFLICT_S)
                return self._put(path, data, mode, tries - 1)
            raise
        return True

    def _pipe(self, path: str, data: bytes, mode: str) -> None:
        try:
            self._fs.pipe_file(path, data, mode=mode)
        except FileNotFoundError:
            if self._fs.async_impl:  # a real object store has no folders: it is the bucket that is not there
                raise
            self._fs.makedirs(self._fs._parent(path), exist_ok=True)
            self._fs.pipe_file(path, data, mode=mode)

    def read(self, name: str) -> bytes | None:
        """See Store."""
        with storage_errors("read", f"{self.url}/{name}"), suppress(FileNotFoundError):
            data: bytes = self._fs.cat_file(self._path(name))
            return data
        return None

    def names(self, folder: str = "") -> list[str]:
        """See Store. fsspec's cached listing may be older than what we or others just wrote."""
        path = self._path(folder)
        with storage_errors("list", f"{self.url}/{folder}"), suppress(FileNotFoundError):
            self._fs.invalidate_cache()
            found = [name.rstrip("/") for name in self._fs.ls(path, detail=False)]
            return sorted(name.rsplit("/", 1)[-1] for name in found if name != path)
        return []

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for name in names:
            with storage_errors("delete", f"{self.url}/{name}"), suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """See Store."""
        with storage_errors("read", f"{self.url}/{name}"), self._fs.open(self._path(name), "rb") as stream:
            yield stream


def _s3_code(problem: OSError) -> str | None:
    """The code with which an S3 refused, as botocore has it."""
    response = getattr(problem.__cause__, "response", None) or {}
    code: str | None = response.get("Error", {}).get("Code")
    return code
