"""An output folder on an object store: one put of the whole object, create-if-absent where the store knows it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from batchjobs.data.filesystem import s3_code
from batchjobs.storage.failures import storage_errors

_CONFLICT_S = 0.2  # before a create that met another one is tried again
_AHEAD_BYTES = 2**18  # read beyond what is asked for: small columns side by side come in one request


class ObjectStore:
    """Any other fsspec filesystem: one put of the whole object, create-if-absent where the store knows it.

    Never `with fs.open(...)` to write: leaving that block by an exception may publish half a file.
    """

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.url = url.rstrip("/")
        # s3fs would look at the size first, to fetch large objects in pieces side by side: two requests for each read
        self._whole = {"max_concurrency": 1} if "s3" in fs.protocol else {}

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
            return self._holds(path, data)
        except OSError as problem:
            code = s3_code(problem)
            if code == "PreconditionFailed" and mode == "create":  # s3fs translates AWS's answer, but not MinIO's
                return self._holds(path, data)
            if code == "NoSuchUpload" and self._holds(path, data):  # large objects: it was completed a moment ago
                return True
            if code == "ConditionalRequestConflict" and tries > 1:  # two creates at the same moment: S3 says try again
                time.sleep(_CONFLICT_S)
                return self._put(path, data, mode, tries - 1)
            raise
        return True

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether the object is what we put: then our own put was repeated below us, because its answer was lost."""
        with suppress(FileNotFoundError):
            return bool(self._fs.cat_file(path, **self._whole) == data)
        return False

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
        with storage_errors("read", f"{self.url}/{name}"):
            try:
                data: bytes = self._fs.cat_file(self._path(name), **self._whole)
                return data
            except FileNotFoundError as missing:
                _check_bucket(missing)
        return None

    def names(self, folder: str = "") -> list[str]:
        """See Store. A cached listing may be older than what we or others just wrote."""
        path = self._path(folder)
        with storage_errors("list", f"{self.url}/{folder}"):
            try:
                self._fs.invalidate_cache()  # for filesystems that cannot be told to have none
                found = [name.rstrip("/") for name in self._fs.ls(path, detail=False)]
                return sorted(name.rsplit("/", 1)[-1] for name in found if name != path)
            except FileNotFoundError as missing:
                _check_bucket(missing)
        return []

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for name in names:
            with storage_errors("delete", f"{self.url}/{name}"), suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """See Store."""
        where = self._path(name)
        with storage_errors("read", f"{self.url}/{name}"), self._fs.open(where, "rb", block_size=_AHEAD_BYTES) as file:
            yield file


def _check_bucket(missing: FileNotFoundError) -> None:
    """An object that is not there is no error; a bucket that is not there is one."""
    if s3_code(missing) == "NoSuchBucket":
        raise missing
