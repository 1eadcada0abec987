"""Reads parts for a report: only the columns that are asked for, batch by batch, and only so many parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.storage.checkpoint import Commit, committed_shards, part_name, read_commit
from batchjobs.storage.store import Store
from schemas.plan import Plan

_BATCH_ROWS = 1024  # rows decoded at once: their texts are what takes memory
_THREADS = 8


@dataclass
class Parts:
    """The committed parts of one job. A part that cannot be read is left out and named: a report is for looking."""

    store: Store
    plan: Plan
    id_column: str | None  # `input.id_column`, if it is kept and is no list, struct or map
    commits: list[Commit] = field(default_factory=list)  # in the order of shards
    unreadable: set[str] = field(default_factory=set)

    @property
    def rows(self) -> int:
        """Output rows of all of them."""
        return sum(commit.rows for commit in self.commits)

    def batches(self, shard: int, columns: Iterable[str]) -> Iterator[pl.DataFrame]:
        """Rows of a part in pieces; result columns are named without the prefix, the id column is `id`."""
        prefix = self.plan.identity["output"]["prefix"]
        stored = {prefix + name: name for name in columns if name != "id"}
        if "id" in columns and self.id_column is not None:
            stored = {self.id_column: "id", **stored}
        try:
            # Arrow's own threads must not hold a Python file when the interpreter ends.
            with self.store.open(part_name(shard)) as stream:
                file = pq.ParquetFile(stream, pre_buffer=False)
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(stored), use_threads=False):
                    yield _frame(batch).rename(stored)
        except (OSError, ValueError):
            self.unreadable.add(part_name(shard))

    def spread(self, most_parts: int) -> list[int]:
        """Shards with rows, evenly spread over the job, at most so many."""
        shards = [commit.shard for commit in self.commits if commit.rows]
        count = min(most_parts, len(shards))
        return [shards[number * len(shards) // count] for number in range(count)]

    def of_rows(self, rows: Iterable[int]) -> list[int]:
        """Shards that have these rows."""
        return sorted({self.plan.shard_of(row) for row in rows})


def _frame(batch: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(batch)
    assert isinstance(frame, pl.DataFrame)
    return frame


def open_parts(store: Store, plan: Plan) -> Parts:
    """The parts that belong to the plan, by the commit records in their footers."""
    wanted: str | None = plan.identity["input"]["id_column"]
    has_ids = wanted in plan.kept_columns and not pa.types.is_nested(plan.result_schema.field(wanted).type)
    parts = Parts(store, plan, wanted if has_ids else None)

    def commit_of(shard: int) -> Commit | None:
        try:
            return read_commit(store, shard)
        except (OSError, ValueError):
            return None

    shards = sorted(committed_shards(store))
    with ThreadPoolExecutor(_THREADS) as pool:
        for shard, commit in zip(shards, pool.map(commit_of, shards), strict=True):
            if commit is None:
                parts.unreadable.add(part_name(shard))
            elif commit.fingerprint == plan.fingerprint:
                parts.commits.append(commit)
    return parts
