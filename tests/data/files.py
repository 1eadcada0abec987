"""Parquet files for tests of reading, and a filesystem that fails in parts and counts what is read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem

TABLE = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})


def write(path: Path, table: pa.Table = TABLE, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


class Patchy(MemoryFileSystem):  # type: ignore[misc]
    """A store with folders, of which it may fail to list one. `bytes_read` counts."""

    protocol = "patchy"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    bytes_read = 0
    find = fsspec.AbstractFileSystem.find

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("patchy://", "memory://")))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if path.endswith("locked"):
            raise PermissionError(f"no permission for {path}")
        return super().ls(path, detail, **kwargs)

    def cat_file(self, path: str, version_id: str | None = None, *, start: int, end: int) -> bytes:  # as of s3fs
        assert version_id is None
        data: bytes = super().cat_file(path, start, end)
        Patchy.bytes_read += len(data)
        return data


fsspec.register_implementation("patchy", Patchy, clobber=True)
