"""When a window has enough."""

from __future__ import annotations

import pyarrow as pa

from batchjobs.engines.base import Request
from batchjobs.replica import window_size
from batchjobs.replica.window import OpenShard
from batchjobs.replica.window_size import WindowSize
from schemas.plan import Shard


def shards_of_a_window(far: bool, rows: int = 10, tokens: int = 5, kept_bytes: int = 8, slots: int = 10) -> int:
    """How many shards of so many rows, each row with so many tokens and kept bytes, make a window."""
    kept = pa.record_batch({"a": pa.array([b"x" * (rows * kept_bytes)])})
    size, shards = WindowSize(slots), 0
    while not size.is_full(far):
        requests = [Request(row, [1] * tokens, 5) for row in range(rows)]
        size.add(OpenShard(shards, Shard(0, rows), kept=[kept]), requests)
        shards += 1
    return shards


def test_a_window_is_two_shards_and_four_times_the_slots() -> None:
    assert shards_of_a_window(far=False) == 4
    assert shards_of_a_window(far=False, rows=1000) == 2
    assert shards_of_a_window(far=False, rows=1) == 40


def test_one_that_looks_far_is_sixteen_times_the_slots() -> None:
    assert shards_of_a_window(far=True) == 16
    assert shards_of_a_window(far=True, rows=1000) == 2


def test_looking_far_ends_at_its_tokens_and_at_its_bytes() -> None:
    assert shards_of_a_window(far=True, tokens=40_000) == 5  # 400,000 tokens a shard
    assert shards_of_a_window(far=True, kept_bytes=window_size._FAR_BYTES // 70) == 7
    assert shards_of_a_window(far=True, tokens=100_000) == 4, "but never below what any window has"
