"""Parts: what they hold, what they say about themselves, and that the first one stands."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.storage.checkpoint import Commit, committed_shards, part_bytes, publish_part, read_commit
from batchjobs.storage.store import open_store

SCHEMA = pa.schema([("text", pa.string())])


def commit(shard: int = 0, **changes: object) -> Commit:
    known = {"fingerprint": "f", "shard": shard, "attempt": 1, "nonce": "n", "rows": 2, "filtered": 0, "ok": 2}
    return Commit.model_validate({**known, **changes})


def batch(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"text": list(texts)}, schema=SCHEMA)


def test_a_part_says_what_it_is_in_its_own_footer(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    publish_part(store, [batch("a", "b")], SCHEMA, commit(7))
    assert committed_shards(store) == {7}
    assert read_commit(store, 7) == commit(7)
    assert pq.read_table(tmp_path / "part-000007.parquet")["text"].to_pylist() == ["a", "b"]


def test_the_first_part_stands(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    publish_part(store, [batch("first")], SCHEMA, commit(nonce="one"))
    standing = publish_part(store, [batch("second")], SCHEMA, commit(nonce="two"))
    assert standing.nonce == "one"
    assert pq.read_table(tmp_path / "part-000000.parquet")["text"].to_pylist() == ["first"]


def test_a_higher_revision_replaces_the_part(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    publish_part(store, [batch("first")], SCHEMA, commit())
    publish_part(store, [batch("second")], SCHEMA, commit(revision=1))
    assert pq.read_table(tmp_path / "part-000000.parquet")["text"].to_pylist() == ["second"]


def test_a_part_of_another_job_is_an_error(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    publish_part(store, [batch("a")], SCHEMA, commit(fingerprint="other"))
    with pytest.raises(OSError, match="belongs to another job"):
        publish_part(store, [batch("a")], SCHEMA, commit())


def test_a_part_without_rows_has_the_schema_all_the_same(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    publish_part(store, [], SCHEMA, commit(rows=0, ok=0))
    assert pq.read_schema(tmp_path / "part-000000.parquet").names == ["text"]


def test_more_than_two_gigabytes_of_text_in_one_part_do_not_overflow() -> None:
    """Batches that share one buffer: 33 rows of 64 MiB, more than a string column's 32-bit offsets can hold."""
    size, rows = 64 * 2**20, 33
    big = batch("x" * size)
    data = part_bytes([big] * rows, SCHEMA, commit(rows=rows))
    lengths = [len(b.column(0)[0].as_py()) for b in pq.ParquetFile(data).iter_batches(batch_size=1)]
    assert lengths == [size] * rows
    assert sum(lengths) > 2**31
