"""Which rows of two outputs belong together: by id, by row number of the same input, or by identical request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import polars as pl

from batchjobs.comparison.outputs import Output
from batchjobs.errors import OutputError
from schemas.comparison import MatchedBy
from schemas.plan import Plan

_HOW: dict[MatchedBy, str] = {
    "id": "no id of one (input.id_column) is an id of the other",
    "row": "they have no committed row of their input in common",
    "request_hash": "they have neither an id that is kept (input.id_column, output.keep_columns) nor the same input "
    "files, and no request of one is a request of the other (another model or prompt makes other requests)",
}


@dataclass(frozen=True)
class Pairs:
    """Rows that belong together."""

    by: MatchedBy
    columns: tuple[str, str]  # which has the key, in A's parts and in B's
    places: pl.DataFrame  # shard, position in its part; of B: shard_b, position_b; ordered as A has them
    rows: tuple[int, int]  # of all committed parts of A and of B

    def sampled(self, most: int) -> Pairs:
        """At most so many of them, evenly spaced."""
        if self.places.height <= most:
            return self
        chosen = np.linspace(0, self.places.height - 1, most).round().astype(np.int64)
        return Pairs(self.by, self.columns, self.places[chosen], self.rows)


def match(a: Output, b: Output) -> Pairs:
    """Find the pairs; raises OutputError if there are none.

    In memory are 16 bytes for each row: keys that are text are compared by 64-bit hashes, of which two in ten million
    rows are the same with a chance of about 3e-6.
    """
    by, columns = _key(a, b)
    most_rows = _common_rows(a.plan, b.plan) if by == "row" else None
    left, right = _places(a, columns[0], most_rows), _places(b, columns[1], most_rows)
    # An id that is there twice names no row; of identical requests any one will do, for their prompts are the same.
    keep = "first" if by == "request_hash" else "none"
    unique = [side.unique("key", keep=keep, maintain_order=True) for side in (left, right)]  # type: ignore[arg-type]
    places = unique[0].join(unique[1], on="key", suffix="_b", maintain_order="left").drop("key")
    if places.is_empty():
        raise OutputError(f"{a.url} and {b.url} cannot be compared row by row: {_HOW[by]}. Nothing was changed.")
    return Pairs(by, columns, places, (left.height, right.height))


def _key(a: Output, b: Output) -> tuple[MatchedBy, tuple[str, str]]:
    if a.id_column is not None and b.id_column is not None:
        return "id", (a.id_column, b.id_column)
    if _common_rows(a.plan, b.plan):
        return "row", (a.column("row"), b.column("row"))
    return "request_hash", (a.column("request_hash"), b.column("request_hash"))


def _common_rows(a: Plan, b: Plan) -> int:
    """So many first rows are the same in both inputs: those of the files, by content, with which both begin."""
    pairs = zip(a.files, b.files, strict=False)
    same = takewhile(lambda pair: (pair[0].size, pair[0].footer_sha256) == (pair[1].size, pair[1].footer_sha256), pairs)
    return sum(file.rows for file, _ in same)


def _places(output: Output, column: str, most_rows: int | None) -> pl.DataFrame:
    """The key of each row and where it is; rows from `most_rows` on are left out."""
    frames = [pl.DataFrame(schema={"key": pl.UInt64, "shard": pl.UInt32, "position": pl.UInt32})]
    for shard, table in output.tables([column]):
        keys = pl.Series("key", table.column(column))
        frame = pl.DataFrame(
            {
                "key": keys.cast(pl.String).hash() if most_rows is None else keys.cast(pl.UInt64),
                "shard": pl.repeat(shard, len(keys), dtype=pl.UInt32, eager=True),
                "position": pl.int_range(len(keys), dtype=pl.UInt32, eager=True),
            }
        )
        frames.append(frame.filter(keys.is_not_null() if most_rows is None else keys < most_rows))
    return pl.concat(frames)
