"""Fewer requests run when the engine preempts too many."""

from __future__ import annotations

from batchjobs.engines.base import EngineStats
from batchjobs.replica.concurrency import Concurrency


def test_the_backlog_is_twice_the_slots() -> None:
    assert Concurrency(64).limit == 128


def test_a_storm_of_preemptions_lowers_what_runs() -> None:
    concurrency = Concurrency(64)
    told = concurrency.look(EngineStats(running=50, preemptions=30), answered=100)
    assert concurrency.limit == 40
    assert told == "30 preemptions for 100 answers: at most 40 requests run from now on"
    concurrency.look(EngineStats(running=40, preemptions=60), answered=200)
    assert concurrency.limit == 32


def test_some_preemptions_few_answers_or_an_engine_that_does_not_tell_change_nothing() -> None:
    concurrency = Concurrency(64)
    for stats, answered in (
        (EngineStats(running=50, preemptions=5), 100),
        (EngineStats(running=50, preemptions=50), 120),
        (EngineStats(running=50), 400),
    ):
        assert concurrency.look(stats, answered) is None
    assert concurrency.limit == 128
