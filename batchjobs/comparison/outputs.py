"""An output folder to be compared: what was asked for, what came of it, and the rows of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from batchjobs.errors import OutputError
from batchjobs.storage.attempts import read_attempts
from batchjobs.storage.checkpoint import committed_shards, part_name, read_part
from batchjobs.storage.output import not_ours, read_job, read_plan, read_summary
from batchjobs.storage.store import Store, open_store
from schemas.comparison import Side
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.summary import Attempt, Summary


@dataclass(frozen=True)
class Output:
    """One side of a comparison. It may be incomplete: then what is committed is compared."""

    url: str
    store: Store
    job: JobSpec
    plan: Plan
    summary: Summary  # of its last run
    attempts: list[Attempt]
    shards: list[int]  # committed

    @property
    def id_column(self) -> str | None:
        """The column that names a row, if the parts have it and its values can be looked up as text."""
        name = self.job.input.id_column
        return name if name in self.plan.kept_columns and _is_simple(self.plan.result_schema.field(name).type) else None

    def column(self, name: str) -> str:
        """What a result column is called in the parts."""
        return self.job.output.prefix + name

    def tables(self, columns: list[str], shards: Iterable[int] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Some columns of each part, one part at a time; raises OutputError for one that cannot be read."""
        for shard in self.shards if shards is None else shards:
            try:
                yield shard, read_part(self.store, shard, columns)
            except (OSError, pa.ArrowInvalid) as problem:
                hint = f"`batchjobs verify {self.url}` tells more. Nothing was changed."
                raise OutputError(f"{self.url}/{part_name(shard)} cannot be read: {problem}. {hint}") from problem

    def side(self) -> Side:
        """What there is to say about it by itself."""
        ends = [attempt.ended for attempt in self.attempts if attempt.ended is not None]
        return Side(
            output=self.url,
            job=self.job.name,
            state=self.summary.state,
            ended=max(ends, default=None),
            rows_ok=self.summary.rows.ok,
            rows_error=self.summary.rows.error,
            errors=self.summary.errors,
            shards=len(self.plan.shards),
            committed=len(self.shards),
        )


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    return any(check(kind) for check in (types.is_integer, types.is_string, types.is_large_string, types.is_date))


def open_output(path: str) -> Output:
    """The output at a folder or fsspec URL; raises OutputError if it is none of ours, or no run of it has ended."""
    store = open_store(path)
    plan = read_plan(store)
    if plan is None:
        raise not_ours(store)
    summary = read_summary(store)
    if summary is None:
        raise OutputError(
            f"{store.url} has no summary: its run still runs or was killed. Run the same command to finish."
        )
    shards = sorted(committed_shards(store))
    return Output(path, store, read_job(store), plan, summary, read_attempts(store), shards)
