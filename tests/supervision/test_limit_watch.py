"""Runs that meet a limit: they stop in time and in order, and the next run goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchjobs.accounts.figures import AttemptFigures, RunFigures
from batchjobs.errors import Refused
from batchjobs.reports.text import text
from batchjobs.supervision import limits as limits_module
from batchjobs.supervision import prepared as prepared_module
from batchjobs.supervision.dispatcher import StopSignal
from batchjobs.supervision.limit_watch import LimitWatch
from batchjobs.supervision.limits import Limits, refuse_beyond
from batchjobs.supervision.progress import Progress
from batchjobs.verify import verify_output
from schemas.figures import Estimate, Interval
from schemas.job import JobSpec
from tests.conftest import MakeJob, read_output, run_here, snapshot, text_table


@pytest.fixture(autouse=True)
def _quick_to_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of these tests are published at once: their runs may be short."""
    monkeypatch.setattr(limits_module, "PUBLISH_S", 2.0)


def slow_job(make_job: MakeJob, run: dict[str, Any], **engine: Any) -> JobSpec:
    """About a minute of work of one replica, which costs a cent a second."""
    return make_job(
        text_table(400),
        engine={"echo": {"tokens_per_s": 46}, **engine},
        run={"drain_seconds": 1, **run},
        cost={"usd_per_hour": 36},
    )


def foresee(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Whatever the job, at least that is what it needs."""
    foreseen = Estimate(seconds=Interval(low=seconds, expected=seconds, high=seconds), basis="Measured.")

    def refuse(limits: Limits, _: Estimate | None, force: bool) -> None:
        refuse_beyond(limits, foreseen, force)

    monkeypatch.setattr(prepared_module, "refuse_beyond", refuse)


def test_a_run_is_over_by_its_deadline_and_the_next_one_does_what_is_left(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(make_job, {"deadline": "12s"})
    began = datetime.now(UTC)
    first = run_here(job)
    assert datetime.now(UTC) < began + timedelta(seconds=12)
    assert (first.state, first.exit_code, [a.cause for a in first.attempts]) == ("partial", 3, ["stopped"])
    assert 0 < first.rows.generated == first.rows.total < 400
    assert "Stopped for run.deadline (" in first.message
    assert f"{first.shards.committed} of 100 shards are committed; the rest will take about " in first.message
    assert "Run the same command again to go on." in text(first)

    before = snapshot(job.output.path)
    foresee(monkeypatch, seconds=20)
    with pytest.raises(Refused, match=r"The job needs 20\.0 s .* leaves 12\.0 s\. .*Nothing was changed.*--force"):
        run_here(job)
    assert snapshot(job.output.path) == before

    fast = make_job(text_table(400), run={"deadline": "10s", "drain_seconds": 1})
    second = run_here(fast, force=True)
    assert (second.state, second.rows.ok) == ("completed", 400)
    assert second.rows.reused >= first.rows.total
    assert second.rows.generated == 400 - second.rows.reused
    assert read_output(job)["output"].to_pylist() == [f"text {n}" for n in range(400)]
    assert verify_output(job.output.path).complete


def test_a_job_that_is_refused_leaves_no_new_folder(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    foresee(monkeypatch, seconds=3601)
    job = make_job(run={"deadline": "1h"})
    with pytest.raises(Refused, match=r"The job needs 1 h 00 min .*leaves 1 h 00 min"):
        run_here(job)
    assert not Path(job.output.path).exists()


def test_replicas_share_one_budget_and_the_whole_run_stays_within_it(make_job: MakeJob) -> None:
    job = slow_job(make_job, {"max_cost_usd": 0.14}, replicas=2)
    summary = run_here(job)
    assert (summary.state, summary.exit_code) == ("partial", 3)
    assert [a.cause for a in summary.attempts] == ["stopped", "stopped"]
    assert summary.cost.usd_this_run is not None
    assert 0.07 < summary.cost.usd_this_run <= 0.14
    assert "Stopped for run.max_cost_usd ($0.1400)" in summary.message
    assert summary.rows.generated > 0


def test_no_engine_starts_again_without_the_time_for_it(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitWatch, "_start_s", lambda watch: 60.0 if watch._figures.attempts else 0.0)
    job = make_job(engine={"echo": {"raise_rows": [5]}}, run={"deadline": "55s", "drain_seconds": 1})
    summary = run_here(job)
    assert (summary.state, [a.cause for a in summary.attempts]) == ("partial", ["engine_died"])
    assert "Stopped for run.deadline" in summary.message


def watch_of(limits: Limits, *attempts: AttemptFigures) -> LimitWatch:
    return LimitWatch(limits, RunFigures(attempts=list(attempts)), StopSignal())


@pytest.mark.parametrize(
    ("held_s", "alive", "may_start"),
    [(0, 0, True), (57, 0, True), (58, 0, False), (47, 1, True), (48, 1, False)],
)
def test_an_engine_starts_only_if_the_budget_buys_its_start_and_the_end_of_all(
    held_s: float, alive: int, may_start: bool
) -> None:
    limits = Limits(max_cost_usd=1, usd_per_hour=36, drain_s=8)  # 100 seconds; the end takes 10 of each engine
    dead = AttemptFigures(ready_s=32, held_s=held_s, is_over=True)
    watch = watch_of(limits, dead, *[AttemptFigures(ready_s=1) for _ in range(alive)])
    assert watch.may_start() is may_start


def test_a_pause_before_a_start_does_not_outlast_the_deadline() -> None:
    watch = watch_of(Limits(deadline=datetime.now(UTC) + timedelta(seconds=30), drain_s=8))
    assert watch.pause(5) == 5
    assert 19 < watch.pause(60) <= 20
    assert watch_of(Limits()).pause(60) == 60


def test_it_is_said_once_that_a_limit_will_be_missed() -> None:
    now = datetime.now(UTC)
    watch = watch_of(Limits(deadline=now + timedelta(hours=2), max_cost_usd=1, usd_per_hour=36))
    moment = Progress(
        phase="generating", rows_total=10, rows_done=1, rows_reused=0, errors=0, output_tokens=1, shards_total=1,
        shards_committed=0, attempt=1, elapsed_s=1, deadline=now + timedelta(hours=2), max_cost_usd=1,
    )  # fmt: skip
    assert watch.warnings(moment) == []
    late = moment.model_copy(update={"ends_at": now + timedelta(hours=3), "usd_forecast": 2.5})
    by_time, by_money = watch.warnings(late)
    assert "will be missed: at this pace the job needs 1 h 00 min more." in by_time
    assert "run.max_cost_usd ($1.0000) will be missed: at this pace the job costs $2.5000." in by_money
    assert watch.warnings(late) == []


def test_after_a_deadline_that_was_a_date_a_later_one_is_asked_for() -> None:
    limits = Limits(deadline=datetime.now(UTC) + timedelta(seconds=9), is_of_this_run=True, drain_s=8)
    watch = watch_of(limits)
    assert watch.outcome(None) is None
    assert "no more rows are fed" in watch.look()[0]
    assert watch.look() == []
    reached = watch.outcome(None)
    assert reached is not None
    assert reached.rest == "how long the rest will take is not known yet"
    assert reached.then == "Set a later run.deadline and run again to go on."
