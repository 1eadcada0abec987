"""The feeding order: what it sorts by, and what `auto` chooses. Whatever it is, the output is the same."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.engines.base import Request
from batchjobs.replica.order import Ordering, choose
from batchjobs.replica.prefixes import PrefixTree
from batchjobs.replica.window import Fed, OpenShard
from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.store import open_store
from schemas.job import Order
from schemas.plan import Shard
from tests.conftest import MakeJob, batchjobs, read_output, run_here, summary_of, write_spec

_SHARD = OpenShard(0, Shard(0, 100))


def fed(*prompt_lengths: int, max_tokens: int = 100) -> Fed:
    return [(Request(row, [row] * tokens, max_tokens), _SHARD) for row, tokens in enumerate(prompt_lengths)]


def rows_of(ordered: Fed) -> list[int]:
    return [request.row for request, _ in ordered]


def ordering(order: Order, earlier: OutputLengths | None = None, now: OutputLengths | None = None) -> Ordering:
    return Ordering(order, True, None, earlier or OutputLengths(), now or OutputLengths())


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("input", [0, 1, 2, 3]),
        ("longest_first", [1, 3, 0, 2]),
        ("shortest_first", [2, 0, 3, 1]),
        ("prefix", [1, 3, 0, 2]),  # nothing is shared
        ("auto", [0, 1, 2, 3]),  # answers of like length
    ],
)
def test_requests_are_fed_in_the_order_that_is_asked_for(order: Order, expected: list[int]) -> None:
    assert rows_of(ordering(order).ordered(fed(5, 9, 2, 7))) == expected


def test_what_counts_is_the_work_that_earlier_answers_let_expect() -> None:
    """Prompts of 8 to 15 tokens have had long answers, longer ones short answers."""
    earlier = OutputLengths({"8": [10, 900], "16": [10, 10]})
    assert rows_of(ordering("longest_first").ordered(fed(10, 20))) == [1, 0]
    assert rows_of(ordering("longest_first", earlier).ordered(fed(10, 20))) == [0, 1]
    assert rows_of(ordering("longest_first", earlier).ordered(fed(10, 20, max_tokens=5))) == [1, 0]


def test_a_window_is_ordered_by_what_the_windows_before_it_have_taught() -> None:
    now = OutputLengths()
    same = ordering("longest_first", now=now)
    assert rows_of(same.ordered(fed(10, 20))) == [1, 0]
    for _ in range(5):
        now.add(10, 90)
        now.add(20, 1)
    assert rows_of(same.ordered(fed(10, 20))) == [0, 1]


def shared_prefixes(documents: int, questions: int) -> PrefixTree:
    """Questions of 64 tokens, each about one of the documents of 192 tokens, shuffled."""
    prompts = [[d] * 192 + [1000 + q] * 64 for d in range(documents) for q in range(questions)]
    random.Random(0).shuffle(prompts)
    return PrefixTree(prompts)


def test_auto_is_prefix_where_only_a_good_order_saves_tokens() -> None:
    chosen = choose(shared_prefixes(10, 10), kv_cache_tokens=5000, answers=[8.0])
    assert chosen.strategy == "prefix"
    assert chosen.reason == (
        "68% of the 25,600 prompt tokens looked at are prefixes shared by some of the rows, and the KV cache of 5,000 "
        "tokens has no room for the 8,320 different ones"
    )


@pytest.mark.parametrize(
    ("tree", "kv_cache_tokens", "why"),
    [
        (None, 5000, "the prefix cache is off; the longest expected answer has 8 tokens"),
        (shared_prefixes(10, 10), 8320, "but the KV cache of 8,320 tokens has room for the 8,320 different ones"),
        (shared_prefixes(100, 1), 5000, "0% of the 25,600 prompt tokens .*, less than 10%"),
        (shared_prefixes(1, 100), 5000, "0% of the 25,600 prompt tokens .*, less than 10%"),  # common to all
    ],
)
def test_else_auto_is_the_order_of_the_input_and_says_why(
    tree: PrefixTree | None, kv_cache_tokens: int, why: str
) -> None:
    chosen = choose(tree, kv_cache_tokens, [8.0] * 10)
    assert chosen.strategy == "input"
    assert chosen.reason is not None
    assert re.search(why, chosen.reason)


def test_for_answers_of_uneven_length_auto_is_longest_first() -> None:
    chosen = choose(shared_prefixes(100, 1), 5000, [8.0] * 9 + [100.0])
    assert chosen.strategy == "longest_first"
    assert chosen.reason is not None
    assert chosen.reason.endswith("the longest expected answer has 100 tokens, the mean 17")


def test_a_kv_cache_of_unknown_size_is_no_reason_to_give_up_what_a_good_order_saves() -> None:
    assert choose(shared_prefixes(10, 10), None, [8.0]).strategy == "prefix"


def test_auto_is_settled_by_the_first_window_that_has_requests() -> None:
    auto = ordering("auto")
    auto.ordered([])
    assert auto.chosen is None
    auto.ordered(fed(5, 9))
    settled = auto.chosen
    auto.ordered([(Request(row, [1] * 160 + [row] * 16, 5), _SHARD) for row in range(20)])
    assert auto.chosen is settled


def questions_about_documents(rows: int) -> pa.Table:
    texts = [f"document {row % 5} " * 10 + f"question {row}" for row in range(rows)]
    return pa.table({"text": texts})


@pytest.mark.parametrize("order", get_args(Order))
def test_a_job_that_is_killed_and_goes_on_in_another_order_has_the_same_output(
    make_job: MakeJob, tmp_path: Path, order: Order
) -> None:
    table, run = questions_about_documents(60), {"shard_rows": 3, "order": order}
    slow: dict[str, Any] = {"max_num_seqs": 2, "echo": {"tokens_per_s": 1500}}
    job = make_job(table, engine=slow, run=run)
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--no-prefect", str(write_spec(job, tmp_path / "a.yaml"))]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not committed_shards(open_store(job.output.path)):
        assert running.poll() is None, "the run ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert len(committed_shards(open_store(job.output.path))) < 20
    other = make_job(table, run={**run, "order": "prefix" if order == "input" else "input"})
    summary = summary_of(batchjobs("run", "--no-prefect", "--json", write_spec(other, tmp_path / "b.yaml")))
    assert (summary["state"], summary["rows"]["total"]) == ("completed", 60)
    assert summary["rows"]["reused"] >= 3
    results = read_output(job)
    assert results["row"].to_pylist() == list(range(60))
    assert results["output"].to_pylist() == [text[:100] for text in table["text"].to_pylist()]


def test_the_summary_says_which_order_it_was_and_why(make_job: MakeJob, tmp_path: Path) -> None:
    table = questions_about_documents(20)
    asked = run_here(make_job(table, run={"order": "shortest_first"}, output={"path": str(tmp_path / "a")}))
    assert (asked.order.strategy, asked.order.reason) == ("shortest_first", "asked for")
    auto = run_here(make_job(table, output={"path": str(tmp_path / "b")}))
    assert auto.order.strategy == "prefix"
    assert auto.order.reason is not None
    assert "shared by some of the rows" in auto.order.reason
    alike = make_job(table, engine={"enable_prefix_caching": False}, output={"path": str(tmp_path / "c")})
    found = run_here(alike).order
    assert (found.strategy, found.reason) == (
        "input",
        "the prefix cache is off; the longest expected answer has 100 tokens, the mean 100",
    )
