"""Every second that an engine is held has one label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchjobs.accounts.engine_seconds import LABELS, count_engine_seconds
from batchjobs.accounts.figures import AttemptFigures
from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.store import open_store
from schemas.summary import EngineSeconds
from tests.conftest import MakeJob, batchjobs, run_here, summary_of, text_table, write_spec


def assert_adds_up(found: EngineSeconds | dict[str, float]) -> dict[str, float]:
    """Each label is a time, and together they are the time held, to 1 %."""
    labels = found if isinstance(found, dict) else found.model_dump()
    assert all(labels[name] >= 0 for name in LABELS)
    assert sum(labels[name] for name in LABELS) == pytest.approx(labels["held"], rel=0.01)
    return labels


def attempt(held_s: float, ready_s: float | None, failure: str | None = None, **last: Any) -> AttemptFigures:
    return AttemptFigures(held_s=held_s, ready_s=ready_s, failure=failure, last=last)


def test_of_one_that_left_in_order_what_nobody_named_is_its_end() -> None:
    laps = {"productive": 5.0, "starved": 1.0, "generating": 5.5}
    assert count_engine_seconds([attempt(10, 3, seconds=laps)]) == EngineSeconds(
        held=10, startup=3, productive=5, starved=1, draining=1
    )


def test_a_death_takes_what_was_not_saved_and_no_more() -> None:
    died = attempt(20, 3, "killed", seconds={"productive": 12.0}, safe_seconds={"productive": 9.0, "starved": 1.0})
    assert count_engine_seconds([died]) == EngineSeconds(held=20, startup=3, productive=9, starved=1, lost=7)
    assert count_engine_seconds([attempt(20, 3, "killed")]) == EngineSeconds(held=20, startup=3, lost=17)


def test_a_start_that_failed_is_lost_and_one_that_was_stopped_is_not() -> None:
    both = [attempt(4, None, "killed"), attempt(5, None)]
    assert count_engine_seconds(both) == EngineSeconds(held=9, startup=5, lost=4)


def test_a_dispatcher_that_hears_late_that_the_engine_is_ready_makes_the_sum_no_larger() -> None:
    late = attempt(10, 3.5, seconds={"productive": 7.0})
    assert count_engine_seconds([late]) == EngineSeconds(held=10, startup=3, productive=7)


@pytest.mark.parametrize("feed", ["continuous", "generate"])
def test_the_seconds_of_a_run_add_up(make_job: MakeJob, feed: str) -> None:
    engine = {"echo": {"tokens_per_s": 200, "start_s": 0.3}}
    labels = assert_adds_up(run_here(make_job(text_table(30), engine=engine, run={"feed": feed})).engine_seconds)
    assert labels["startup"] > 0.3
    assert labels["productive"] > 0.5
    assert labels["lost"] == 0


def test_the_seconds_of_two_replicas_add_up(make_job: MakeJob) -> None:
    engine = {"replicas": 2, "echo": {"tokens_per_s": 100}}
    summary = run_here(make_job(text_table(40), engine=engine))
    labels = assert_adds_up(summary.engine_seconds)
    assert labels["held"] > summary.seconds.wall - summary.seconds.plan
    assert labels["held"] == pytest.approx(sum(one.held_s for one in summary.attempts), abs=0.01)


@pytest.mark.parametrize(("feed", "at_least"), [("continuous", 0.5), ("generate", 0.0)])
def test_the_seconds_of_a_run_that_is_stopped_add_up(
    make_job: MakeJob, tmp_path: Path, feed: str, at_least: float
) -> None:
    """Of `continuous`, sixteen rows of 0.2 s are in the engine; of `generate`, what is left of a call of four."""
    job = make_job(text_table(60), engine={"max_num_seqs": 8, "echo": {"tokens_per_s": 35}}, run={"feed": feed})
    store = open_store(job.output.path)
    file = write_spec(job, tmp_path / "job.yaml")
    result = batchjobs("run", "--no-prefect", "--json", file, stop_when=lambda: len(committed_shards(store)) > 1)
    labels = assert_adds_up(summary_of(result)["engine_seconds"])
    assert labels["draining"] > at_least
    assert labels["lost"] == 0


@pytest.mark.parametrize("feed", ["continuous", "generate"])
def test_a_replica_that_is_killed_loses_only_what_was_not_saved(make_job: MakeJob, feed: str) -> None:
    """It dies on row 40, after nearly 3 seconds and nine shards of 4 rows."""
    engine = {"max_num_seqs": 2, "echo": {"tokens_per_s": 100, "die_rows": [40]}}
    job = make_job(text_table(42), engine=engine, run={"order": "input", "max_restarts": 0, "feed": feed})
    labels = assert_adds_up(run_here(job).engine_seconds)
    assert labels["lost"] > 0
    assert labels["productive"] > 1


def test_the_seconds_of_two_replicas_of_which_one_is_killed_add_up(make_job: MakeJob) -> None:
    """The row that kills is looked for and quarantined, which takes several lives."""
    engine = {"replicas": 2, "echo": {"tokens_per_s": 100, "die_rows": [22]}}
    summary = run_here(make_job(text_table(40), engine=engine, run={"order": "input", "max_error_rate": 0.5}))
    labels = assert_adds_up(summary.engine_seconds)
    assert summary.rows.error == 1
    assert labels["lost"] > 0
    assert labels["held"] == pytest.approx(sum(one.held_s for one in summary.attempts), abs=0.01)


def test_what_an_engine_that_raises_had_answered_is_not_lost(make_job: MakeJob) -> None:
    """Rows are in one shard that stays open; the journal has them when the engine raises after about 2 seconds."""
    engine = {"max_num_seqs": 2, "echo": {"tokens_per_s": 100, "raise_rows": [30]}}
    run = {"order": "input", "shard_rows": 100, "max_restarts": 0, "max_error_rate": 0.5}
    summary = run_here(make_job(text_table(40), engine=engine, run=run))
    labels = assert_adds_up(summary.engine_seconds)
    assert summary.state == "failed"
    assert labels["productive"] > 1.5
    assert labels["lost"] < labels["productive"]
