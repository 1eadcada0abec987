"""A sample of a job's own rows: a few from a handful of places, rendered and tokenised as a replica would."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from batchjobs.data.columns import filtered
from batchjobs.data.reader import ShardReader
from batchjobs.engines.base import Request
from batchjobs.errors import BatchjobsError
from batchjobs.fingerprint import model_id
from batchjobs.planning.plan import predicate_of
from batchjobs.planning.render import NO_LIMIT
from batchjobs.rows.prompts import Renderer
from batchjobs.rows.tokens import load_tokenizer
from schemas.job import JobSpec
from schemas.plan import Plan, Shard

if TYPE_CHECKING:
    from batchjobs.data.predicate import Predicate

logger = logging.getLogger("batchjobs")

_PLACES = 8
_ROWS = 32  # of each place
_DEEPEST = 16_384  # rows into a row group: to get to a row, all before it in its row group are decoded
_SECONDS = 5.0  # after which no further place is read

Expected = Callable[[Request], int]  # output tokens that a request will probably have


def max_tokens_of(request: Request) -> int:
    """What is expected of an answer as long as nobody knows better."""
    return request.max_tokens


@dataclass
class Sample:
    """Tokens of some rows that will be generated."""

    read: int = 0  # rows looked at, those that the filter removes and bad ones included
    prompts: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)  # prompt and expected output
    longest: int = 0  # the most that one may need: its prompt and all of its max_tokens

    def add(self, request: Request, expected: Expected) -> None:
        """Count one request."""
        prompt = len(request.token_ids)
        self.prompts.append(prompt)
        self.totals.append(prompt + min(request.max_tokens, expected(request)))
        self.longest = max(self.longest, prompt + request.max_tokens)

    def p95(self) -> int:
        """A total that 95 % of the rows do not exceed. The sample must not be empty."""
        return sorted(self.totals)[-(-95 * len(self.totals) // 100) - 1]

    def tokens_of(self, rows: int) -> float:
        """Tokens that so many rows of the dataset have, together."""
        return rows * sum(self.totals) / self.read if self.read else 0.0


def take_sample(
    job: JobSpec,
    plan: Plan,
    fs: Any,
    paths: Sequence[str],
    shards: Sequence[int],
    expected: Expected = max_tokens_of,
) -> Sample:
    """Some rows of these shards. `job` has its references resolved; `paths` are where the plan's files are now."""
    renderer = Renderer(job, plan.input_schema, plan.as_of)
    renderer.connect(load_tokenizer(job, plan.as_of), NO_LIMIT, NO_LIMIT, model_id(plan.model))
    predicate = predicate_of(job, plan.input_schema)
    columns = list(dict.fromkeys([*renderer.columns, *(predicate.columns if predicate else [])]))
    sample, until = Sample(), time.monotonic() + _SECONDS
    with ShardReader(fs, paths, plan.files, plan.input_schema, columns) as reader:
        for place in places(plan, shards):
            for batch in _batches(reader, place):
                sample.read += batch.num_rows
                for request in _requests(renderer, predicate, batch):
                    sample.add(request, expected)
            if time.monotonic() > until:
                break
    return sample


def _batches(reader: ShardReader, place: Shard) -> list[pa.RecordBatch]:
    try:
        return reader.read(place)
    except BatchjobsError as problem:  # the run will come to it, after what can be done
        logger.warning("Rows are left out of the sample. %s", problem)
        return []


def _requests(renderer: Renderer, predicate: Predicate | None, batch: pa.RecordBatch) -> Iterator[Request]:
    """Of the rows that the filter keeps, those that are good."""
    if predicate is not None:
        batch = filtered(batch, pa.array([wanted is True for wanted in predicate.mask(batch).to_pylist()], pa.bool_()))
    for made in renderer.requests(batch, range(batch.num_rows)):
        if isinstance(made, Request):
            yield made


def places(plan: Plan, shards: Sequence[int]) -> list[Shard]:
    """A handful of short runs of rows, spread evenly over these shards, none deep inside a big row group."""
    total = sum(plan.shards[shard].rows for shard in shards)
    if total <= _PLACES * _ROWS:
        return [piece for shard in shards for piece in _pieces(plan.shards[shard])]
    wanted = [total * place // _PLACES for place in range(_PLACES)]
    found: list[Shard] = []
    for row in _rows_at(plan, shards, wanted):
        row = _near_the_start(plan, row)
        if not found or row >= found[-1].first_row + _ROWS:
            found.append(Shard(row, _ROWS))
    return found


def _pieces(shard: Shard) -> Iterator[Shard]:
    for first in range(0, shard.rows, _ROWS):
        yield Shard(shard.first_row + first, min(_ROWS, shard.rows - first))


def _rows_at(plan: Plan, shards: Sequence[int], positions: Sequence[int]) -> Iterator[int]:
    """Row numbers at positions among the rows of these shards, one after the other."""
    done, left = 0, list(positions)
    for shard in (plan.shards[index] for index in shards):
        while left and left[0] < done + shard.rows:
            yield min(shard.first_row + left.pop(0) - done, plan.rows - _ROWS)
        done += shard.rows


def _near_the_start(plan: Plan, row: int) -> int:
    """The row itself in a small row group; in a big one, a row as far into its first part as it is into the whole."""
    first = 0
    for rows in (rows for file in plan.files for rows in file.row_groups):
        if row < first + rows:
            return row if rows <= _DEEPEST else first + (row - first) * _DEEPEST // rows
        first += rows
    return row
