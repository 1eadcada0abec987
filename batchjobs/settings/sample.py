"""A sample of a job's own rows: a few from a handful of places, rendered and tokenised as a replica would."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa

from batchjobs.data.columns import filtered
from batchjobs.data.reader import ShardReader
from batchjobs.engines.base import Request
from batchjobs.errors import BatchjobsError
from batchjobs.fingerprint import model_id
from batchjobs.planning.plan import predicate_of
from batchjobs.planning.render import NO_LIMIT
from batchjobs.rows.prompts import Renderer, RowError
from batchjobs.rows.tokens import load_tokenizer
from schemas.job import JobSpec
from schemas.plan import Plan, Shard
from schemas.records import ErrorCode

logger = logging.getLogger("batchjobs")

_PLACES = 8
_ROWS = 32  # of each place
DEEPEST = 16_384  # rows into a row group: to get to a row, all before it in its row group are decoded
_SECONDS = 5.0  # after which no further place is read
_PIECE = 256  # rows that are rendered together: long prompts of a whole shard would fill the memory

Expected = Callable[[Request], int]  # output tokens that a request will probably have


def max_tokens_of(request: Request) -> int:
    """What is expected of an answer as long as nobody knows better."""
    return request.max_tokens


@dataclass(frozen=True)
class Looked:
    """Some rows of one place, rendered and tokenised."""

    place: int
    rows: int  # before the filter
    filtered: int  # of these, removed by it
    prompt_bytes: int  # of the prompt's columns, in Arrow
    made: list[Request | RowError]


class Looker:
    """Makes requests of a dataset's rows as a replica would, outside of a run."""

    def __init__(
        self,
        job: JobSpec,
        plan: Plan,
        fs: Any,
        paths: Sequence[str],
        max_len: int = NO_LIMIT,
        vocabulary: int = NO_LIMIT,
        also: Sequence[str] = (),
    ) -> None:
        """`job` has its references resolved; `paths` are where the plan's files are now.

        Prompts of `max_len` tokens or more, and ids from `vocabulary` on, are errors of their rows. `also` are columns
        that nothing is made of, for who wants to see them.
        """
        self._renderer = Renderer(job, plan.input_schema, plan.as_of)
        self._renderer.connect(load_tokenizer(job, plan.as_of), max_len, vocabulary, model_id(plan.model))
        self._predicate = predicate_of(job, plan.input_schema)
        self._prompt = [name for name in self._renderer.columns if name != job.sampling.per_row_column]
        filter_columns = self._predicate.columns if self._predicate else []
        self._columns = list(dict.fromkeys([*self._renderer.columns, *filter_columns, *also]))
        self._plan, self._fs, self._paths = plan, fs, paths

    def at(self, places: Iterable[Shard], seen: Callable[[pa.RecordBatch], None] | None = None) -> Iterator[Looked]:
        """The rows of these places, a few hundred at a time; `seen` gets their columns as they are read."""
        with ShardReader(self._fs, self._paths, self._plan.files, self._plan.input_schema, self._columns) as reader:
            for number, place in enumerate(places):
                row = place.first_row
                for batch in _batches(reader, place):
                    for start in range(0, batch.num_rows, _PIECE):
                        piece = batch.slice(start, _PIECE)
                        if seen is not None:
                            seen(piece)
                        yield self._looked(number, piece, row)
                        row += piece.num_rows

    def _looked(self, place: int, batch: pa.RecordBatch, first_row: int) -> Looked:
        size, total = batch.select(self._prompt).nbytes, batch.num_rows
        rows: list[int] = list(range(first_row, first_row + total))
        unknown: set[int] = set()  # rows on which the filter itself fails
        if self._predicate is not None:
            wanted = self._predicate.mask(batch).to_pylist()
            unknown = {row for row, value in zip(rows, wanted, strict=True) if value is None}
            rows = [row for row, value in zip(rows, wanted, strict=True) if value is not False]
            batch = filtered(batch, pa.array([value is not False for value in wanted], pa.bool_()))
        made = [_unless_unknown(one, unknown) for one in self._renderer.requests(batch, rows)]
        return Looked(place, total, total - len(rows), size, made)


def _unless_unknown(made: Request | RowError, unknown: set[int]) -> Request | RowError:
    if made.row not in unknown:
        return made
    return RowError(made.row, ErrorCode.BAD_VALUE, "input.filter cannot be evaluated on this row")


def _batches(reader: ShardReader, place: Shard) -> list[pa.RecordBatch]:
    try:
        return reader.read(place)
    except BatchjobsError as problem:  # the run will come to it, after what can be done
        logger.warning("Rows are left out of the sample. %s", problem)
        return []


@dataclass
class PlaceSums:
    """What the rows of one place add up to."""

    rows: int = 0  # before the filter
    prompt_bytes: int = 0  # of the prompt's columns, in Arrow
    requests: list[tuple[int, int]] = field(default_factory=list)  # prompt tokens and max_tokens of good rows

    @property
    def prompt_tokens(self) -> int:
        """Of rows that will be generated."""
        return sum(prompt for prompt, _ in self.requests)


@dataclass
class Sample:
    """Tokens of some rows that will be generated."""

    read: int = 0  # rows looked at, those that the filter removes and bad ones included
    prompts: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)  # prompt and expected output
    longest: int = 0  # the most that one may need: its prompt and all of its max_tokens
    places: dict[int, PlaceSums] = field(default_factory=dict)

    def add(self, request: Request, expected: Expected) -> None:
        """Count one request."""
        prompt = len(request.token_ids)
        self.prompts.append(prompt)
        self.totals.append(prompt + min(request.max_tokens, expected(request)))
        self.longest = max(self.longest, prompt + request.max_tokens)

    def look(self, looked: Looked, expected: Expected = max_tokens_of) -> None:
        """Count some rows of a place."""
        sums = self.places.setdefault(looked.place, PlaceSums())
        self.read += looked.rows
        sums.rows += looked.rows
        sums.prompt_bytes += looked.prompt_bytes
        for made in looked.made:
            if isinstance(made, Request):
                self.add(made, expected)
                sums.requests.append((len(made.token_ids), made.max_tokens))

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
    """Some rows of these shards, in a few seconds: see `Looker`."""
    looker = Looker(job, plan, fs, paths)
    sample, until = Sample(), time.monotonic() + _SECONDS
    for looked in looker.at(places(plan, shards)):
        if looked.place not in sample.places and time.monotonic() > until:
            break
        sample.look(looked, expected)
    return sample


def places(
    plan: Plan,
    shards: Sequence[int],
    count: int = _PLACES,
    rows: int = _ROWS,
    offset: float = 0.0,
    deepest: int = DEEPEST,
) -> list[Shard]:
    """Short runs of rows, spread evenly over these shards, none more than `deepest` rows inside its row group.

    `offset` (0 to 1) moves them by a share of the distance between two.
    """
    total = sum(plan.shards[shard].rows for shard in shards)
    if total <= count * rows:
        return [piece for shard in shards for piece in _pieces(plan.shards[shard], rows)]
    wanted = [int(total * (place + offset) / count) for place in range(count)]
    found: list[Shard] = []
    starts = [0, *accumulate(group for file in plan.files for group in file.row_groups)]
    for row in _rows_at(plan, shards, wanted, rows):
        row = _near_the_start(starts, row, deepest)
        if not found or row >= found[-1].first_row + rows:
            found.append(Shard(row, rows))
    return found


def _pieces(shard: Shard, rows: int) -> Iterator[Shard]:
    for first in range(0, shard.rows, rows):
        yield Shard(shard.first_row + first, min(rows, shard.rows - first))


def _rows_at(plan: Plan, shards: Sequence[int], positions: Sequence[int], rows: int) -> Iterator[int]:
    """Row numbers at positions among the rows of these shards, one after the other."""
    done, left = 0, list(positions)
    for shard in (plan.shards[index] for index in shards):
        while left and left[0] < done + shard.rows:
            yield min(shard.first_row + left.pop(0) - done, plan.rows - rows)
        done += shard.rows


def _near_the_start(starts: Sequence[int], row: int, deepest: int) -> int:
    """The row itself in a small row group; in a big one, a row as far into its first part as it is into the whole."""
    group = bisect_right(starts, row) - 1
    first, rows = starts[group], starts[group + 1] - starts[group]
    return row if rows <= deepest else first + (row - first) * deepest // rows
