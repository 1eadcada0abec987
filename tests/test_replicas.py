"""Several replicas: the same rows as one, shards go to whoever asks, and a dead one's are done by the others."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from batchjobs.leftovers import mark_of, marked
from batchjobs.settings.devices import Placement
from batchjobs.supervision import prepared
from batchjobs.supervision.lives import Replica
from schemas.job import JobSpec
from tests.conftest import MakeJob, read_output, run_here, text_table


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def two(make_job: MakeJob, rows: int = 60, **echo: object) -> JobSpec:
    return make_job(text_table(rows), engine={"replicas": 2, "echo": echo}, run={"max_error_rate": 0.5})


def test_two_replicas_share_the_shards_and_every_row_is_there_once(make_job: MakeJob) -> None:
    job = two(make_job, tokens_per_s=50)
    summary = run_here(job)
    assert (summary.state, summary.rows.ok, summary.rows.generated) == ("completed", 60, 60)
    assert [(a.replica, a.attempt, a.cause) for a in summary.attempts] == [(0, 1, "done"), (1, 2, "done")]
    assert all(attempt.rows_done > 0 for attempt in summary.attempts)
    table = read_output(job)
    assert table["row"].to_pylist() == list(range(60))
    assert table["output"].to_pylist() == [f"text {n}" for n in range(60)]
    assert set(table["attempt"].to_pylist()) == {1, 2}
    labels = summary.engine_seconds
    assert labels.held == pytest.approx(
        labels.startup + labels.productive + labels.starved + labels.tail + labels.draining + labels.lost, abs=0.01
    )
    assert labels.held == pytest.approx(sum(attempt.held_s for attempt in summary.attempts), abs=0.01)


def test_poison_rows_of_two_replicas_are_found_beside_each_other(make_job: MakeJob) -> None:
    job = two(make_job, die_rows=[3, 41], tokens_per_s=400)
    summary = run_here(job)
    assert (summary.state, summary.errors) == ("completed", {"engine_crash": 2})
    crashed = [row["row"] for row in read_output(job).to_pylist() if row["error_code"] == "engine_crash"]
    assert crashed == [3, 41]


def test_one_replica_that_is_killed_costs_only_what_was_in_flight(make_job: MakeJob) -> None:
    job = two(make_job, rows=120, tokens_per_s=100)

    def kill_one() -> None:
        deadline = time.monotonic() + 30
        while len(pids := marked(mark_of(job.output.path))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5)
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    summary = run_here(job)
    killer.join()
    assert (summary.state, summary.rows.ok) == ("completed", 120)
    assert sorted(attempt.cause or "" for attempt in summary.attempts)[:2] == ["done", "done"]
    assert "engine_died" in {attempt.cause for attempt in summary.attempts}
    assert read_output(job)["row"].to_pylist() == list(range(120))
    assert marked(mark_of(job.output.path)) == []


def test_engines_that_never_start_fail_the_job_after_each_was_tried_three_times(make_job: MakeJob) -> None:
    summary = run_here(two(make_job, fail_at_start="no such device"))
    assert (summary.state, [a.cause for a in summary.attempts]) == ("failed", ["start_failed"] * 6)
    assert "no such device" in summary.message


def test_a_replica_that_is_given_up_leaves_its_shards_to_the_others(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Placement({"PYTHONHOME": "/nowhere"})  # its interpreter does not start
    monkeypatch.setattr(prepared, "placements", lambda job: [broken, Placement()])
    job = two(make_job)
    summary = run_here(job)
    assert (summary.state, summary.rows.ok) == ("completed", 60)
    assert [a.cause for a in summary.attempts if a.replica == 0] == ["start_failed"] * 3
    assert read_output(job)["row"].to_pylist() == list(range(60))


def test_a_replica_that_pauses_after_a_failed_start_lets_the_others_start(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []

    def pause(replica: Replica, seconds: float) -> bool:
        held.append(replica._shared.starts.locked())
        return False

    monkeypatch.setattr(Replica, "_pause", pause)
    job = make_job(engine={"echo": {"fail_at_start": "no such device"}})
    assert run_here(job).state == "failed"
    assert held == [False, False]


def test_engines_start_one_after_the_other(make_job: MakeJob) -> None:
    summary = run_here(two(make_job, start_s=1.5))
    begin = sorted(attempt.started for attempt in summary.attempts)
    assert (begin[1] - begin[0]).total_seconds() >= 1.5


def test_a_replica_that_would_find_nothing_to_do_is_not_started(make_job: MakeJob) -> None:
    summary = run_here(two(make_job, rows=2))
    assert (summary.state, len(summary.attempts)) == ("completed", 1)


def test_each_replica_runs_on_cores_of_its_own(make_job: MakeJob) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core cannot be shared out")
    job = two(make_job, tokens_per_s=100)
    cores: dict[int, frozenset[int]] = {}

    def look() -> None:
        deadline = time.monotonic() + 30
        while len(cores) < 2 and time.monotonic() < deadline:
            for pid in marked(mark_of(job.output.path)):
                if len(os.sched_getaffinity(pid)) < len(os.sched_getaffinity(0)):
                    cores[pid] = frozenset(os.sched_getaffinity(pid))
            time.sleep(0.05)

    looking = threading.Thread(target=look)
    looking.start()
    run_here(job)
    looking.join()
    assert len(set(cores.values())) == 2
    assert not frozenset.intersection(*cores.values())
