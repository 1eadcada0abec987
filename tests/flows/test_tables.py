"""What tables say of attempts, and which shards they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from batchjobs.storage.checkpoint import Commit
from flows.tables import MOST_SHARDS, attempts_table, shards_table
from schemas.summary import Attempt


def test_an_attempt_says_why_it_ended_and_what_was_done_about_it() -> None:
    began = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
    died = Attempt(replica=1, attempt=1, started=began, ended=began + timedelta(minutes=5), cause="out_of_memory",
                   failure="CUDA out of memory.", remedy="max_num_seqs 64", rows_done=7)  # fmt: skip
    alive = Attempt(replica=1, attempt=2, started=began + timedelta(minutes=6))
    first, second = attempts_table([died, alive])
    assert first == {
        "replica": 1, "attempt": 1, "started": "2026-11-29 02:00 UTC", "ended": "2026-11-29 02:05 UTC",
        "cause": "CUDA out of memory.", "remedy": "max_num_seqs 64", "rows": 7,
    }  # fmt: skip
    assert (second["ended"], second["cause"], second["rows"]) == ("not known", "", 0)


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
