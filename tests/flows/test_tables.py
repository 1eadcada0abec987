"""Which shards a table names."""

from __future__ import annotations

from batchjobs.storage.checkpoint import Commit
from flows.tables import MOST_SHARDS, shards_table


def commit(shard: int, seconds: float = 1.0, **errors: int) -> Commit:
    failed = sum(errors.values())
    return Commit(
        fingerprint="f", shard=shard, attempt=1, nonce="n", rows=10, filtered=0, ok=10 - failed, errors=errors,
        seconds=seconds,
    )  # fmt: skip


def test_shards_with_errors_come_first_then_the_slowest() -> None:
    table = shards_table([commit(0), commit(1, 9.0), commit(2, too_long=1), commit(3, too_long=2, null_value=1)])
    assert [row["shard"] for row in table] == [3, 2, 1, 0]
    assert table[0]["error codes"] == "null_value 1, too_long 2"
    assert table[0]["part"] == "part-000003.parquet"


def test_a_table_of_shards_is_no_longer_than_somebody_reads() -> None:
    table = shards_table([commit(shard, seconds=float(shard)) for shard in range(1000)])
    assert [row["shard"] for row in table] == list(range(999, 999 - MOST_SHARDS, -1))
