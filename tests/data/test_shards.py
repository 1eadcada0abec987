"""Shards: every row exactly once, none too long, none too large."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from batchjobs.data.shards import cut_shards
from schemas.plan import Shard

row_groups = st.lists(st.tuples(st.integers(0, 300), st.floats(0, 5000)), max_size=20)


@given(row_groups, st.integers(1, 200), st.integers(1, 20_000), st.none() | st.integers(1, 2000))
def test_each_row_is_in_exactly_one_shard_in_order(
    groups: list[tuple[int, float]], shard_rows: int, max_bytes: int, limit: int | None
) -> None:
    total = sum(rows for rows, _ in groups)
    rows = [
        row
        for s in cut_shards(groups, shard_rows, max_bytes, limit)
        for row in range(s.first_row, s.first_row + s.rows)
    ]
    assert rows == list(range(total if limit is None else min(total, limit)))


@given(row_groups, st.integers(1, 200), st.integers(1, 20_000))
def test_no_shard_passes_the_rows_or_bytes_allowed_unless_one_row_does(
    groups: list[tuple[int, float]], shard_rows: int, max_bytes: int
) -> None:
    row_bytes = [size for rows, size in groups for _ in range(rows)]
    for shard in cut_shards(groups, shard_rows, max_bytes):
        assert 1 <= shard.rows <= shard_rows
        if shard.rows > 1:
            assert sum(row_bytes[shard.first_row : shard.first_row + shard.rows]) <= max_bytes * 1.001


@given(row_groups, st.integers(1, 200), st.integers(1, 20_000))
def test_a_shard_ends_only_when_it_is_full(groups: list[tuple[int, float]], shard_rows: int, max_bytes: int) -> None:
    row_bytes = [size for rows, size in groups for _ in range(rows)]
    for shard in cut_shards(groups, shard_rows, max_bytes)[:-1]:
        one_more = sum(row_bytes[shard.first_row : shard.first_row + shard.rows + 1])
        assert shard.rows == shard_rows or one_more > max_bytes * 0.999


def test_small_files_share_a_shard_and_a_big_file_is_many() -> None:
    assert cut_shards([(30, 1.0), (30, 1.0), (100, 1.0)], 64) == [Shard(0, 64), Shard(64, 64), Shard(128, 32)]


def test_a_dataset_without_rows_has_no_shard() -> None:
    assert cut_shards([], 4096) == []
    assert cut_shards([(0, 0.0)], 4096) == []


def test_a_row_larger_than_a_shard_is_a_shard() -> None:
    assert cut_shards([(3, 1e9)], 4096) == [Shard(0, 1), Shard(1, 1), Shard(2, 1)]


def test_a_hundred_million_rows_take_no_time_per_row() -> None:
    start = time.process_time()
    assert len(cut_shards([(90_000_000, 100.0), *[(1000, 100.0)] * 10_000], 4096)) == 24_415
    assert time.process_time() - start < 2
