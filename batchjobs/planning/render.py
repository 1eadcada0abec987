"""Rows as the engine gets them, rendered outside of a run: for `try`, `explain` and the benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchjobs.data.reader import ShardReader
from batchjobs.engines.base import Request
from batchjobs.fingerprint import model_id
from batchjobs.planning.plan import Dataset
from batchjobs.rows.prompts import Renderer, RowError
from batchjobs.rows.tokens import load_tokenizer
from schemas.job import JobSpec
from schemas.plan import Plan, Shard

NO_LIMIT = 2**31  # lengths and ids are judged by the run itself


def rendered(job: JobSpec, plan: Plan, dataset: Dataset, shards: Iterable[Shard]) -> Iterator[Request | RowError]:
    """Every row of some shards, the filter not applied. `job` has its references resolved."""
    renderer = Renderer(job, dataset.schema, plan.as_of, keep_text=True)
    renderer.connect(load_tokenizer(job, plan.as_of), NO_LIMIT, NO_LIMIT, model_id(plan.model))
    paths = [file.path for file in dataset.files]
    with ShardReader(dataset.fs, paths, dataset.files, dataset.schema, renderer.columns) as reader:
        for shard in shards:
            row = shard.first_row
            for batch in reader.read(shard):
                yield from renderer.requests(batch, range(row, row + batch.num_rows))
                row += batch.num_rows
