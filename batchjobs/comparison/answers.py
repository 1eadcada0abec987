"""The answers of some pairs of rows, read part by part."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from batchjobs.comparison.matching import Pairs
from batchjobs.comparison.outputs import Output
from batchjobs.rows.health import health_of
from batchjobs.rows.results import Result, of_stored
from schemas.records import GOOD_FINISH_REASONS, RESULT_COLUMNS, Status


class Answer(NamedTuple):
    """What a part says of one row."""

    key: str  # id, row number or request hash
    result: Result

    @property
    def is_good(self) -> bool:
        """Whether the row was answered well."""
        return self.result.status == Status.OK

    @property
    def output_tokens(self) -> int | None:
        """Tokens of an answer that the engine came to an end with, be it of use or not."""
        return self.result.output_tokens if self.result.finish_reason in GOOD_FINISH_REASONS else None

    def faults(self) -> dict[str, int]:
        """1 for what is wrong with it, by the names that a comparison uses, else 0."""
        found = health_of([self.result])
        return {
            "failed": int(not self.is_good),
            "empty": found.empty,
            "truncated": found.truncated,
            "invalid JSON": found.invalid,
            "repetitive": found.repetitive,
        }


def read_answers(a: Output, b: Output, pairs: Pairs) -> list[tuple[Answer, Answer]]:
    """Both answers of each pair. All of them are in memory at once, the parts one at a time."""
    places = pairs.places
    before = _read(a, pairs.columns[0], places["shard"], places["position"])
    now = _read(b, pairs.columns[1], places["shard_b"], places["position_b"])
    return list(zip(before, now, strict=True))


def _read(output: Output, key: str, shards: pl.Series, positions: pl.Series) -> list[Answer]:
    """The rows at these places, in the order of these."""
    wanted = pl.DataFrame({"pair": pl.arange(len(shards), eager=True), "shard": shards, "position": positions})
    by_shard = {frame["shard"][0]: frame for frame in wanted.partition_by("shard")}
    columns = [output.column(name) for name in RESULT_COLUMNS]
    found: dict[int, Answer] = {}
    for shard, table in output.tables(list(dict.fromkeys([key, *columns])), sorted(by_shard)):
        rows = table.take(by_shard[shard]["position"].to_arrow())
        keys = rows.column(key).to_pylist()
        values = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        for pair, name, row in zip(by_shard[shard]["pair"], keys, values, strict=True):
            found[pair] = Answer(str(name), of_stored(row))
    return [found[pair] for pair in range(wanted.height)]
