"""Where the engine's seconds go while it is fed across shard borders."""

from __future__ import annotations

from batchjobs.engines.echo import EchoEngine
from bench.wired import assignment_of, run_wired
from tests.conftest import MakeJob, text_table


def test_the_wait_for_the_first_window_is_starved(make_job: MakeJob) -> None:
    job = make_job(text_table(200), engine={"max_num_seqs": 256})  # a single window, in far less than a second
    feeder, _ = run_wired(assignment_of(job), EchoEngine(job))
    assert feeder.watch.seconds()["starved"] > 0


def test_the_last_requests_are_tail_only_when_fewer_than_half_of_the_slots_run(make_job: MakeJob) -> None:
    engine = {"max_num_seqs": 4, "echo": {"tokens_per_s": 200}}  # a row in 0.03 s; only the last one is tail
    job = make_job(text_table(10), engine=engine)
    feeder, _ = run_wired(assignment_of(job), EchoEngine(job))
    seconds = feeder.watch.seconds()
    assert 0 < seconds["tail"] < seconds["productive"] / 3


def test_suspects_that_run_alone_leave_slots_free_though_rows_are_left(make_job: MakeJob) -> None:
    engine = {"max_num_seqs": 4, "echo": {"tokens_per_s": 100}}
    job = make_job(text_table(10), engine=engine)
    assignment = assignment_of(job).model_copy(update={"groups": [[3], [5]]})
    feeder, heard = run_wired(assignment, EchoEngine(job))
    fed = [sorted(message["rows"]) for message in heard.messages if message["kind"] == "fed"]
    assert fed[:2] == [[3], [5]]
    assert feeder.watch.seconds()["starved"] > 0.1  # two rows of 0.06 s each
