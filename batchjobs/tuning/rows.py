"""Rows of the job's own dataset, evenly spread over it, as a small dataset of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.data.columns import filtered
from batchjobs.data.reader import ShardReader
from batchjobs.errors import InputError
from batchjobs.planning.plan import Dataset, predicate_of
from batchjobs.settings.sample import places
from schemas.job import InputSpec, JobSpec
from schemas.plan import Plan

if TYPE_CHECKING:
    from batchjobs.data.predicate import Predicate

_RUN = 16  # neighbours: rows that begin alike often stand side by side
_LOOKS = (1, 4, 16)  # times the wanted rows are read, for a filter that removes many


def write_sample(job: JobSpec, plan: Plan, dataset: Dataset, rows: int, file: Path) -> int:
    """Write `rows` rows that the filter keeps to a Parquet file, all columns with their types; returns how many.

    Hive columns become ordinary ones. `job` has its references resolved. Raises InputError if there are none.
    """
    predicate = predicate_of(job, dataset.schema)
    kept: list[pa.RecordBatch] = []
    for times in _LOOKS if predicate is not None else (1,):
        kept = _read(plan, dataset, predicate, times * rows)
        if sum(batch.num_rows for batch in kept) >= rows:
            break
    table = pa.Table.from_batches(_thinned(kept, rows), dataset.schema)
    if not table.num_rows:
        raise InputError("No row to try settings on: the filter removes every row that was looked at.")
    pq.write_table(table, file)
    return int(table.num_rows)


def _read(plan: Plan, dataset: Dataset, predicate: Predicate | None, rows: int) -> list[pa.RecordBatch]:
    paths, names = [file.path for file in dataset.files], dataset.schema.names
    kept: list[pa.RecordBatch] = []
    with ShardReader(dataset.fs, paths, dataset.files, dataset.schema, names) as reader:
        for run in places(plan, range(len(plan.shards)), -(-rows // _RUN), _RUN):
            for batch in reader.read(run):
                if predicate is not None:
                    wanted = [value is True for value in predicate.mask(batch).to_pylist()]
                    batch = filtered(batch, pa.array(wanted, pa.bool_()))
                kept.append(batch)
    return kept


def _thinned(batches: list[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    """At most `rows` of these rows, evenly spread."""
    total = sum(batch.num_rows for batch in batches)
    if total <= rows:
        return batches
    wanted, first, thinned = {total * row // rows for row in range(rows)}, 0, []
    for batch in batches:
        mask = pa.array([first + row in wanted for row in range(batch.num_rows)], pa.bool_())
        thinned.append(filtered(batch, mask))
        first += batch.num_rows
    return thinned


def on_sample(job: JobSpec, file: Path) -> JobSpec:
    """The job over the sampled rows; the filter has done its work."""
    return job.model_copy(update={"input": InputSpec(path=str(file))})
