"""The frozen plan: which rows, from which files, in which shards, and what each part looks like (`plan.json`)."""

from __future__ import annotations

import base64
from bisect import bisect_right
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict


class Shard(NamedTuple):
    """A contiguous run of the dataset's rows; its number is its position in the plan."""

    first_row: int
    rows: int


class InputFile(BaseModel):
    """One input file as it was when the job was planned."""

    model_config = ConfigDict(frozen=True)

    name: str  # path below the dataset's root, hive folders included: what makes it the same file
    path: str  # as its filesystem names it
    size: int  # bytes
    footer_sha256: str
    etag: str | None = None
    row_groups: list[int]  # rows of each
    partitions: dict[str, str] = {}  # hive columns of this file

    @cached_property
    def rows(self) -> int:
        """Rows in this file."""
        return sum(self.row_groups)


class Plan(BaseModel):
    """What the job will do. Frozen in the output folder by the first run; later runs go on with it."""

    model_config = ConfigDict(frozen=True)

    version: int = 1
    fingerprint: str  # SHA-256 over `identity`, the files and the model
    identity: dict[str, Any]  # every setting that can change a result
    model: dict[str, str]  # fingerprint of the model: what was looked at -> its hash
    created: datetime
    as_of: datetime  # the instant that templates see as "now"
    versions: dict[str, str]  # batchjobs, pyarrow, ...
    files: list[InputFile]
    shards: list[Shard]
    input_schema_ipc: str  # base64 Arrow schema of the dataset, hive columns included
    result_schema_ipc: str  # base64 Arrow schema of every part
    kept_columns: list[str]

    @cached_property
    def rows(self) -> int:
        """Rows of the dataset, before the filter."""
        return sum(shard.rows for shard in self.shards)

    @cached_property
    def _first_rows(self) -> list[int]:
        return [shard.first_row for shard in self.shards]

    def shard_of(self, row: int) -> int:
        """Number of the shard that has this row. Empty shards share their first row with the next one, which has it."""
        return bisect_right(self._first_rows, row) - 1

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Unified schema of the dataset."""
        return decode_schema(self.input_schema_ipc)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Schema of every part."""
        return decode_schema(self.result_schema_ipc)


def encode_schema(schema: pa.Schema) -> str:
    """Arrow schema as base64 text of its IPC message."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Inverse of `encode_schema`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
