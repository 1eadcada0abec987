"""Cut a dataset into shards: contiguous runs of rows, each row in exactly one."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.plan import Shard

MAX_SHARD_BYTES = 256 * 2**20
_MANY = 2**62  # rows, more than there are


def cut_shards(
    row_groups: Iterable[tuple[int, float]],
    shard_rows: int,
    max_bytes: int = MAX_SHARD_BYTES,
    limit: int | None = None,
) -> list[Shard]:
    """Shards of the rows in `row_groups`, pairs of (rows, average bytes per row) in the dataset's order.

    A shard ends at `shard_rows` rows or where the next row would pass `max_bytes` by the averages, and has at least one
    row. Only the first `limit` rows are cut; no rows give no shard. Takes time per shard and row group, not per row.
    """
    shards: list[Shard] = []
    first, rows, size = 0, 0, 0.0  # of the shard that is open
    for group_rows, row_bytes in _first_rows(row_groups, limit):
        left = group_rows
        while left:
            fitting = _fitting(max_bytes - size, row_bytes)
            take = min(left, shard_rows - rows, fitting if rows else max(1, fitting))
            left, rows, size = left - take, rows + take, size + take * row_bytes
            if left or rows == shard_rows:  # full, by rows or by bytes
                shards.append(Shard(first, rows))
                first, rows, size = first + rows, 0, 0.0
    return [*shards, Shard(first, rows)] if rows else shards


def _fitting(room: float, row_bytes: float) -> int:
    """How many rows of `row_bytes` fit into `room` bytes."""
    if room < 0:
        return 0
    return int(min(room / row_bytes, _MANY)) if row_bytes > 0 else _MANY


def _first_rows(row_groups: Iterable[tuple[int, float]], limit: int | None) -> Iterable[tuple[int, float]]:
    left = _MANY if limit is None else limit
    for rows, row_bytes in row_groups:
        yield min(rows, left), row_bytes
        left -= min(rows, left)
