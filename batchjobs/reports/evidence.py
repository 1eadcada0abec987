"""What the parts tell beyond the summary: how long rows are, which took longest, examples of what went wrong."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl

from batchjobs.reports.examples import Examples, Row, find_examples, with_texts
from batchjobs.reports.parts import Parts
from schemas.records import Status

MOST_PARTS = 400  # read for lengths and times
MOST_ROWS = 1_000_000  # of these parts
SLOWEST = 10
_THREADS = 8
_NUMBERS = ("row", "status", "prompt_tokens", "output_tokens", "queue_s", "ttft_s", "tpot_s")


@dataclass
class Numbers:
    """Lengths and times of rows."""

    rows: int = 0  # that were looked at
    prompt_tokens: Counter[int] = field(default_factory=Counter)  # tokens -> rows
    output_tokens: Counter[int] = field(default_factory=Counter)  # of answers
    slowest: list[Row] = field(default_factory=list)


@dataclass
class Evidence:
    """All that a report shows of rows."""

    rows: int = 0  # in the parts
    parts: int = 0
    numbers: Numbers = field(default_factory=Numbers)
    examples: Examples = field(default_factory=Examples)
    id_column: str | None = None
    unreadable: list[str] = field(default_factory=list)  # names of parts


def gather(parts: Parts) -> Evidence:
    """Look at the parts: all of a small job, a sample that is spread evenly over a large one."""
    numbers, examples = _numbers(parts), find_examples(parts)
    with_texts(parts, [*numbers.slowest, *(row for rows in examples.unhealthy.values() for row in rows)])
    return Evidence(parts.rows, len(parts.commits), numbers, examples, parts.id_column, sorted(parts.unreadable))


def _numbers(parts: Parts) -> Numbers:
    shards = parts.spread(MOST_PARTS)
    most = MOST_ROWS if parts.rows <= MOST_ROWS else max(1, MOST_ROWS // len(shards))  # of one part
    found = Numbers()
    with ThreadPoolExecutor(_THREADS) as pool:
        for own in pool.map(lambda shard: _of_part(parts, shard, most), shards):
            found.rows += own.rows
            found.prompt_tokens += own.prompt_tokens
            found.output_tokens += own.output_tokens
            found.slowest = _slowest([*found.slowest, *own.slowest])
    return found


def _of_part(parts: Parts, shard: int, most: int) -> Numbers:
    own = Numbers()
    for batch in parts.batches(shard, _NUMBERS):
        batch = batch.head(most - own.rows)
        own.rows += batch.height
        own.prompt_tokens += _counted(batch["prompt_tokens"])
        own.output_tokens += _counted(batch.filter(pl.col("status") == Status.OK)["output_tokens"])
        own.slowest = _slowest([*own.slowest, *_served(batch)])
        if own.rows == most:
            break
    return own


def _counted(tokens: pl.Series) -> Counter[int]:
    return Counter(tokens.drop_nulls().to_list())


def _served(batch: pl.DataFrame) -> list[Row]:
    """The slowest of a batch, the wait in the queue left out: (TTFT - queue) + TPOT x (tokens - 1)."""
    decode = pl.col("tpot_s").fill_null(0) * (pl.col("output_tokens") - 1)
    served = batch.with_columns(service_s=pl.col("ttft_s") - pl.col("queue_s") + decode).drop_nulls("service_s")
    rows = served.top_k(SLOWEST, by="service_s").select("row", "service_s")
    return [Row(**values) for values in rows.to_dicts()]


def _slowest(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-(row.service_s or 0), row.row))[:SLOWEST]
