"""The journal: what is finished in open shards survives, once, and only if it is still the same request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchjobs.rows.results import Result
from batchjobs.storage import journal as module
from batchjobs.storage.journal import DamagedFragment, Journal, fragment_bytes, fragment_results
from batchjobs.storage.store import Store, open_store
from tests.conftest import MakeJob, batchjobs, read_output, run_here, text_table, write_spec


def shard_of(row: int) -> int:
    """Shards of four rows."""
    return row // 4


def result(row: int, text: str = "ä\0") -> Result:
    return Result(
        row, text, finish_reason="stop", prompt_tokens=3, output_tokens=2, ttft_s=0.5, attempt=1, request_hash="h"
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def fragments(store: Store) -> list[str]:
    return store.names(module.JOURNAL)


def test_a_fragment_gives_back_its_rows() -> None:
    rows = [result(1), Result(2, None, "why", status="error", error_code="invalid_output", error="bad")]
    assert fragment_results(fragment_bytes(rows)) == rows


@pytest.mark.parametrize("length", [0, 5, 40, 200])
def test_a_torn_fragment_is_damaged(length: int) -> None:
    with pytest.raises(DamagedFragment):
        fragment_results(fragment_bytes([result(1)])[:length])


def test_a_flipped_bit_is_damage() -> None:
    data = bytearray(fragment_bytes([result(1)]))
    data[-30] ^= 1
    with pytest.raises(DamagedFragment):
        fragment_results(bytes(data))


def test_a_damaged_fragment_is_dropped_with_a_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.publish(module.fragment_name(1, 1), b"rubbish")
    journal = Journal(store, 2, shard_of)
    journal.load(set())
    assert journal.earlier == {}
    assert fragments(store) == []
    assert "0001-000001.arrow is dropped" in caplog.text


def test_of_a_row_in_several_fragments_the_lowest_attempt_wins(store: Store) -> None:
    store.publish(module.fragment_name(2, 1), fragment_bytes([result(1, "second")]))
    store.publish(module.fragment_name(1, 1), fragment_bytes([result(1, "first")]))
    journal = Journal(store, 3, shard_of)
    journal.load(set())
    assert journal.earlier[1].output == "first"


def test_what_a_replica_beside_this_one_has_left_is_found_when_its_shard_comes_here(store: Store) -> None:
    journal = Journal(store, 2, shard_of)
    journal.add(1, result(5))
    journal.flush()
    journal.load(set())
    store.publish(module.fragment_name(1, 1), fragment_bytes([result(1, "theirs")]))
    journal.look_again()
    assert {row: known.output for row, known in journal.earlier.items()} == {1: "theirs"}
    journal.committed(1)
    assert fragments(store) == ["0001-000001.arrow"]


def test_a_fragment_goes_when_all_its_rows_are_in_parts(store: Store) -> None:
    journal = Journal(store, 1, shard_of)
    journal.add(0, result(1))
    journal.add(1, result(5))
    journal.flush()
    journal.committed(0)
    assert fragments(store) == ["0001-000001.arrow"]
    journal.committed(1)
    assert fragments(store) == []


def test_rows_of_a_committed_shard_are_not_journaled(store: Store) -> None:
    journal = Journal(store, 1, shard_of)
    journal.add(0, result(1))
    journal.committed(0)
    journal.flush()
    assert fragments(store) == []


def test_fragments_of_committed_shards_are_cleaned_at_the_next_start(store: Store) -> None:
    store.publish(module.fragment_name(1, 1), fragment_bytes([result(1), result(5)]))
    journal = Journal(store, 2, shard_of)
    journal.load({0, 1})
    assert journal.earlier == {}
    assert fragments(store) == []


def test_finished_rows_of_an_open_shard_are_not_generated_again(make_job: MakeJob) -> None:
    failed = run_here(
        make_job(
            text_table(8),
            engine={"echo": {"raise_rows": [7]}},
            run={"shard_rows": 8, "order": "input", "max_restarts": 0},
        )
    )
    assert (failed.state, failed.shards.committed) == ("failed", 0)
    job = make_job(text_table(8), run={"shard_rows": 8})
    summary = run_here(job)
    assert summary.rows.reused > 0
    assert summary.rows.generated == 8 - summary.rows.reused
    table = read_output(job)
    assert table["output"].to_pylist() == [f"text {n}" for n in range(8)]
    assert set(table["attempt"].to_pylist()) == {1, 2}
    assert list(Path(job.output.path, module.JOURNAL).iterdir()) == []


def test_a_journaled_row_counts_only_for_the_same_request(make_job: MakeJob, store: Store) -> None:
    job = make_job(text_table(8), engine={"echo": {"raise_rows": [7]}}, run={"shard_rows": 8, "max_restarts": 0})
    run_here(job)
    output = open_store(job.output.path)
    output.publish(module.fragment_name(1, 0), fragment_bytes([result(n, "of another request") for n in range(8)]))
    fine = make_job(text_table(8), run={"shard_rows": 8})
    run_here(fine)
    assert read_output(fine)["output"].to_pylist() == [f"text {n}" for n in range(8)]


def test_a_stopped_job_keeps_what_was_finished(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(40), engine={"echo": {"tokens_per_s": 30}}, run={"shard_rows": 40, "drain_seconds": 0})
    file = write_spec(job, tmp_path / "job.yaml")

    def answered() -> bool:
        progress = tmp_path / "out/_batchjobs/progress.json"
        return progress.exists() and json.loads(progress.read_text())["rows_done"] > 0

    stopped = batchjobs("run", "--no-prefect", "--json", file, stop_when=answered)
    assert stopped.returncode == 3
    fast = make_job(text_table(40), run={"shard_rows": 40})
    assert run_here(fast).rows.reused > 0
