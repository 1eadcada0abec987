"""Identical requests: generated once in a window, answered for every row, and counted as what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchjobs.engines.base import Request
from batchjobs.replica.duplicates import distinct
from batchjobs.replica.window import OpenShard
from batchjobs.retry import retry_failed
from batchjobs.storage.checkpoint import read_commit
from batchjobs.storage.store import open_store
from batchjobs.supervision.progress import Silent
from batchjobs.verify import verify_output
from schemas.job import Deduplicate, JobSpec
from schemas.plan import Shard
from schemas.summary import Summary
from tests.conftest import MakeJob, read_output, run_here

GREEDY = {"temperature": 0, "max_tokens": 100}
# Rows 0, 2, 5 and 7 are the same, and so are 1 and 4; 3 and 6 are alone. With `shard_rows` 4 one window has them all.
TEXTS = ["aa", "bbb", "aa", "c", "bbb", "aa", "dd", "aa"]


def table(texts: list[str], **columns: Any) -> pa.Table:
    return pa.table({"text": texts, **columns})


def copies(job: JobSpec) -> list[int]:
    """Rows that have an answer and no times."""
    results = read_output(job).to_pylist()
    return [row["row"] for row in results if row["finish_reason"] == "stop" and row["ttft_s"] is None]


def assert_counted(summary: Summary, **expected: int) -> None:
    rows = summary.rows
    assert rows.total == rows.ok + rows.error == rows.generated + rows.deduplicated + rows.reused + rows.rejected
    assert rows.model_dump(include=set(expected)) == expected


def test_identical_rows_are_generated_once_and_every_row_has_its_answer(make_job: MakeJob) -> None:
    job = make_job(table(TEXTS), sampling=GREEDY)
    summary = run_here(job)
    results = read_output(job)
    assert results["row"].to_pylist() == list(range(8))
    assert results["output"].to_pylist() == results["text"].to_pylist() == TEXTS
    assert copies(job) == [2, 4, 5, 7]
    assert_counted(summary, total=8, ok=8, generated=4, deduplicated=4)
    assert verify_output(job.output.path).complete


def test_a_copy_has_the_output_and_the_tokens_but_no_times(make_job: MakeJob) -> None:
    job = make_job(table(TEXTS), sampling={**GREEDY, "max_tokens": 2})
    run_here(job)
    rows = read_output(job).to_pylist()
    times = dict.fromkeys(("queue_s", "ttft_s", "tpot_s"))
    assert rows[4] == {**rows[1], **times, "row": 4}
    assert rows[1]["warning"] == "max_tokens"
    assert rows[1]["ttft_s"] is not None


def test_copies_count_in_no_token_figure_and_what_they_saved_is_told(make_job: MakeJob) -> None:
    job = make_job(table(TEXTS), sampling=GREEDY)
    summary = run_here(job)
    assert (summary.tokens.prompt, summary.tokens.output) == (8, 8)  # aa, bbb, c, dd
    assert summary.tokens.saved_by_deduplication == 2 * (2 + 3 + 2 + 2)
    commits = [read_commit(open_store(job.output.path), shard) for shard in range(2)]
    assert [commit.deduplicated for commit in commits] == [1, 3]
    assert [commit.tokens["saved"] for commit in commits] == [4, 14]


@pytest.mark.parametrize(
    ("sampling", "deduplicate", "generated"),
    [
        (GREEDY, "auto", 4),
        (GREEDY, "never", 8),
        ({"max_tokens": 100}, "auto", 8),  # vLLM's temperature is 1
        ({"max_tokens": 100, "from_model": True}, "auto", 8),
        ({"max_tokens": 100, "temperature": 0.7}, "auto", 8),
        ({"max_tokens": 100, "temperature": 0.7}, "always", 4),
        ({"max_tokens": 100, "temperature": 0.7, "seed": 3}, "auto", 4),
        ({"max_tokens": 100, "temperature": 0.7, "seed": -1}, "auto", 8),  # to vLLM, no seed
    ],
)
def test_an_answer_is_shared_if_the_request_determines_it_or_if_asked_for(
    make_job: MakeJob, sampling: dict[str, Any], deduplicate: Deduplicate, generated: int
) -> None:
    job = make_job(table(TEXTS), sampling=sampling, run={"shard_rows": 4, "deduplicate": deduplicate})
    assert_counted(run_here(job), generated=generated, deduplicated=8 - generated)


def test_rows_with_sampling_of_their_own_are_not_identical(make_job: MakeJob) -> None:
    own = [{"max_tokens": n, "temperature": t} for n, t in ((50, None), (50, None), (60, None), (50, 0.5), (50, 0.5))]
    kind = pa.struct([("max_tokens", pa.int64()), ("temperature", pa.float64())])
    job = make_job(table(["aa"] * 5, own=pa.array(own, kind)), sampling={**GREEDY, "per_row_column": "own"})
    assert_counted(run_here(job), generated=4, deduplicated=1)
    assert copies(job) == [1]


@given(st.lists(st.integers(0, 3)), st.sampled_from(["auto", "always", "never"]), st.booleans())
def test_every_row_is_run_or_follows_the_first_of_its_kind(kinds: list[int], choice: Deduplicate, greedy: bool) -> None:
    shard = OpenShard(0, Shard(0, len(kinds)))
    sampling = {"temperature": 0} if greedy else {}
    fed = [(Request(row, [kind], 5, sampling, str(kind)), shard) for row, kind in enumerate(kinds)]
    unique, followers = distinct(fed, choice)
    run = [request.row for request, _ in unique]
    following = {row: first for first, rows in followers.items() for row, _ in rows}
    assert sorted([*run, *following]) == list(range(len(kinds)))
    for row, first in following.items():
        assert first == kinds.index(kinds[row])
    shares = choice == "always" or (choice == "auto" and greedy)
    assert len(run) == (len(set(kinds)) if shares else len(kinds))


def test_an_error_of_the_engine_is_the_error_of_all_and_a_retry_runs_one_of_them(make_job: MakeJob) -> None:
    echo = {"error_rows": [0], "reject_rows": [1]}
    job = make_job(table(TEXTS), sampling=GREEDY, engine={"echo": echo}, run={"shard_rows": 4, "max_error_rate": 1})
    summary = run_here(job)
    codes = [{"aa": "engine_error", "bbb": "engine_rejected"}.get(text) for text in TEXTS]
    assert read_output(job)["error_code"].to_pylist() == codes
    assert_counted(summary, ok=2, error=6, generated=3, deduplicated=4, rejected=1)
    assert summary.errors == {"engine_error": 4, "engine_rejected": 2}
    spec = Path(job.output.path) / "_batchjobs/spec.yaml"
    spec.write_text(spec.read_text().replace("- 0", "- 100").replace("- 1\n", "- 101\n"))
    again = retry_failed(job.output.path, [], Silent())
    assert_counted(again, ok=8, generated=2, deduplicated=4, reused=2)
    assert read_output(job)["output"].to_pylist() == TEXTS
    assert (again.tokens.output, again.tokens.saved_by_deduplication) == (8, 18)


def test_a_retry_that_leaves_copies_standing_counts_no_token_twice(make_job: MakeJob) -> None:
    job = make_job(
        table(TEXTS), sampling=GREEDY, engine={"echo": {"error_rows": [3]}}, run={"shard_rows": 4, "max_error_rate": 1}
    )
    before = run_here(job)
    spec = Path(job.output.path) / "_batchjobs/spec.yaml"
    spec.write_text(spec.read_text().replace("- 3", "- 300"))
    again = retry_failed(job.output.path, [], Silent())
    assert_counted(again, ok=8, generated=1, deduplicated=0, reused=7)
    assert again.tokens.output == before.tokens.output + 1
    assert again.tokens.saved_by_deduplication == before.tokens.saved_by_deduplication == 18


def test_a_row_that_kills_the_engine_is_quarantined_with_all_that_are_identical(make_job: MakeJob) -> None:
    """Whichever of them is fed, the engine dies on it; afterwards it does not die on the others."""
    echo = {"die_rows": [row for row, text in enumerate(TEXTS) if text == "aa"]}
    job = make_job(table(TEXTS), sampling=GREEDY, engine={"echo": echo}, run={"shard_rows": 4, "max_error_rate": 1})
    summary = run_here(job)
    assert summary.errors == {"engine_crash": 4}
    assert summary.state == "completed"
    codes = ["engine_crash" if text == "aa" else None for text in TEXTS]
    assert read_output(job)["error_code"].to_pylist() == codes
    assert len(summary.attempts) == 4, "one death among others, two alone, then all the rest"
    assert_counted(summary, ok=4, rejected=4)


def test_a_crash_leaves_only_what_was_not_answered(make_job: MakeJob) -> None:
    """Shard 1 stays open: of its rows, what was journaled is reused, copies included, and counts as before."""
    texts = ["aa", "x", "y", "bbb", "aa", "zz", "bbb", "w", "zz", "dead"]
    options: dict[str, Any] = {"sampling": GREEDY, "run": {"shard_rows": 5, "max_restarts": 0, "order": "input"}}
    failed = run_here(make_job(table(texts), engine={"echo": {"raise_rows": [9]}}, **options))
    assert (failed.state, failed.rows.total) == ("failed", 5)
    job = make_job(table(texts), **options)
    summary = run_here(job)
    assert_counted(summary, ok=10, generated=1, deduplicated=0, reused=9)
    assert read_output(job)["output"].to_pylist() == texts
    assert copies(job) == [4, 6, 8]
    assert (summary.tokens.output, summary.tokens.saved_by_deduplication) == (14, 4 + 6 + 4)


def test_a_stop_before_the_answer_leaves_the_copies_to_the_next_run(make_job: MakeJob) -> None:
    """The engine dies on the one row whose answer all others wait for."""
    job = make_job(
        table(["aa"] * 8), sampling=GREEDY, engine={"echo": {"raise_rows": [0]}},
        run={"shard_rows": 4, "max_restarts": 0},
    )  # fmt: skip
    assert run_here(job).rows.total == 0
    job = make_job(table(["aa"] * 8), sampling=GREEDY)
    assert_counted(run_here(job), total=8, ok=8, generated=1, deduplicated=7)


@pytest.mark.parametrize(("order", "windows"), [("auto", 20), ("prefix", 5)])
def test_windows_do_not_share_and_with_prefix_they_are_larger(make_job: MakeJob, order: str, windows: int) -> None:
    """Two shards and four times the two slots make a window, eight rows; with `prefix` it is four times as large."""
    texts = [f"{window} {'a' * 40}" for window in range(20) for _ in range(8)]
    job = make_job(table(texts), sampling=GREEDY, run={"shard_rows": 4, "order": order})
    assert_counted(run_here(job), total=160, generated=20, deduplicated=140)
    path = f"{job.output.path}2"
    same = make_job(
        table(["aa"] * 160),
        sampling=GREEDY,
        run={"shard_rows": 4, "order": order},
        output={"path": path},
    )
    assert_counted(run_here(same), total=160, generated=windows, deduplicated=160 - windows)


def test_an_answer_that_is_no_json_is_the_error_of_all(make_job: MakeJob) -> None:
    sampling = {**GREEDY, "structured_outputs": {"json": {"type": "array"}}}
    job = make_job(table(["[1]", "{", "{"]), sampling=sampling, run={"max_error_rate": 1})
    summary = run_here(job)
    assert summary.errors == {"invalid_output": 2}
    assert_counted(summary, generated=2, deduplicated=1)


def test_deduplication_does_not_make_the_engine_look_broken(make_job: MakeJob) -> None:
    """A hundred failures in a row without a success are a broken engine; copies of one failure are one failure."""
    texts = ["aa"] * 200 + ["b"]
    job = make_job(
        table(texts), sampling=GREEDY, engine={"echo": {"error_rows": [0]}},
        run={"shard_rows": 201, "max_error_rate": 1},
    )  # fmt: skip
    assert run_here(job).rows.ok == 1
