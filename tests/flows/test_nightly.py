"""The nightly flow: its date, runs that start too late, several job files, input that is late, and backfills."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.deployments import run_deployment
from prefect.flow_engine import run_flow
from prefect.states import Cancelling

from batchjobs.spec import load_job
from flows.batch_inference import exit_code_of
from flows.nightly import nightly
from tests.conftest import batchjobs, run_here
from tests.dated import WriteFile, dated_job_file, rows_of
from tests.flows.seen import log_of
from tests.flows.server import Server, worker
from tests.waiting import eventually

pytestmark = [pytest.mark.prefect, pytest.mark.usefixtures("prefect_api")]

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def job_file(tmp_path: Path) -> WriteFile:
    return partial(dated_job_file, tmp_path)


@contextmanager
def deployed(
    schedule: CronSchedule | IntervalSchedule | None, pool: str | None = None, folder: Path | None = None, **given: Any
) -> Iterator[UUID]:
    """A deployment of the nightly flow; without a pool, no worker takes its runs."""
    made_by = [DeploymentScheduleCreate(schedule=schedule, slug="night")] if schedule is not None else []
    step = "prefect.deployments.steps.set_working_directory"
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(
            client.create_flow(nightly), "night", schedules=made_by, parameters=given, work_pool_name=pool,
            entrypoint="flows.nightly.nightly", pull_steps=[{step: {"directory": str(folder)}}] if folder else None,
        )  # fmt: skip
        try:
            yield deployment
        finally:
            client.delete_deployment(deployment)


def runs_of(deployment: UUID) -> list[FlowRun]:
    """Oldest first."""
    with get_client(sync_client=True) as client:
        mine = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
        found = client.read_flow_runs(deployment_filter=mine)
    return sorted(found, key=lambda run: run.expected_start_time or datetime.now(UTC))


def scheduled(deployment: UUID, at: datetime) -> FlowRun:
    """The run that the scheduler makes for that time."""
    with get_client(sync_client=True) as client:
        body = {"start_time": at.isoformat(), "end_time": at.isoformat(), "min_runs": 1, "max_runs": 1}
        client._client.post(f"/deployments/{deployment}/schedule", json=body).raise_for_status()
    return next(run for run in runs_of(deployment) if run.expected_start_time == at)


def carried_out(run: FlowRun) -> tuple[State[Any], str]:
    """Final state and name of a run of the nightly flow, here instead of on a worker."""
    state = cast(State[Any], run_flow(nightly, run, run.parameters, return_type="state"))
    with get_client(sync_client=True) as client:
        return state, client.read_flow_run(run.id).name


def by_hand(**given: Any) -> tuple[State[Any], str]:
    state = nightly(return_state=True, **given)
    with get_client(sync_client=True) as client:
        assert state.state_details.flow_run_id is not None
        return state, client.read_flow_run(state.state_details.flow_run_id).name


@pytest.mark.parametrize(
    ("cron", "zone", "start"),
    [
        ("30 0 * * *", "Europe/Berlin", "2026-11-28T00:30"),  # the day before in UTC
        ("30 23 * * *", "America/New_York", "2026-11-27T23:30"),  # the day after in UTC
        ("59 23 * * *", "Europe/Berlin", "2026-03-28T23:59"),  # before clocks are put forward
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:30"),  # a time that comes twice
    ],
)
def test_the_date_is_that_of_the_scheduled_start_where_the_schedule_lives(
    job_file: WriteFile, cron: str, zone: str, start: str
) -> None:
    at = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone))
    schedule = CronSchedule(cron=cron, timezone=zone)
    with deployed(schedule, job_file=str(job_file()), latest_start=None) as deployment:
        state, name = carried_out(scheduled(deployment, at.astimezone(UTC)))
    assert f"/data/dt={start[:10]} does not exist" in str(state.message)
    assert (state.name, name) == ("Refused", f"docs-{start[:10]}")


def test_a_run_by_hand_is_for_today_where_the_schedule_lives(job_file: WriteFile) -> None:
    zone = "Pacific/Kiritimati"  # UTC+14
    with deployed(CronSchedule(cron="0 2 * * *", timezone=zone), job_file=str(job_file())) as deployment:
        run = cast(FlowRun, run_deployment(deployment, timeout=0, as_subflow=False))
        _, name = carried_out(run)
        other = cast(
            FlowRun, run_deployment(deployment, timeout=0, as_subflow=False, parameters={"timezone": "Pacific/Niue"})
        )
        _, named_otherwise = carried_out(other)
    assert name == f"docs-{datetime.now(ZoneInfo(zone)).date()}"
    assert named_otherwise == f"docs-{datetime.now(ZoneInfo('Pacific/Niue')).date()}"


def test_a_run_that_starts_too_late_skips_itself_unless_it_is_retried(job_file: WriteFile, tmp_path: Path) -> None:
    today = datetime.now(BERLIN).replace(hour=2, minute=0, second=0, microsecond=0)
    at = (today - timedelta(days=1)).astimezone(UTC)
    rows_of(tmp_path, at.astimezone(BERLIN).date())
    with deployed(CronSchedule(cron="0 2 * * *", timezone="Europe/Berlin"), job_file=str(job_file())) as deployment:
        run = scheduled(deployment, at)
        state, name = carried_out(run)
        day = at.astimezone(BERLIN).date()
        assert (state.type.value, state.name, name) == ("COMPLETED", "Skipped", f"docs-{day}")
        assert f"it was to start at {day} 02:00 CE" in str(state.message)
        assert "latest_start is 12h" in str(state.message)
        assert f'the parameter date "{day}"' in str(state.message)
        assert not (tmp_path / "out").exists()

        with get_client(sync_client=True) as client:
            again = client.read_flow_run(run.id)
            assert again.run_count == 1
            client.set_flow_run_state(
                run.id, State.model_validate({"type": "SCHEDULED", "name": "AwaitingRetry"}), True
            )
            again = client.read_flow_run(run.id)
        state, name = carried_out(again)
    assert (state.name, name) == ("Completed", f"docs-{day}")
    assert (tmp_path / f"out/dt={day}/_SUCCESS").exists()


def test_a_run_with_a_date_of_its_own_is_never_too_late(job_file: WriteFile, tmp_path: Path) -> None:
    rows_of(tmp_path, "2026-11-01")
    state, name = by_hand(job_file=str(job_file()), date="2026-11-01", latest_start="1s")
    assert (state.name, name) == ("Completed", "docs-2026-11-01")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "job_file: missing"),
        ({"job_file": "x.yaml", "date": "tonight"}, "date: found 'tonight'"),
        ({"job_file": "x.yaml", "until": "2026-11-03"}, "date: missing; until needs the first date"),
        ({"job_file": "x.yaml", "timezone": "Mars/Olympus"}, "timezone: found 'Mars/Olympus'"),
        ({"job_file": "x.yaml", "latest_start": "noon"}, "latest_start: found 'noon'; allowed: a duration"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    state, _ = by_hand(**given)
    assert (state.name, exit_code_of(state)) == ("Refused", 2)
    assert message in str(state.message)


def test_several_job_files_run_one_after_the_other_and_one_that_fails_keeps_none_from_running(
    job_file: WriteFile, tmp_path: Path
) -> None:
    rows_of(tmp_path, "2026-11-28")
    rows_of(tmp_path, "2026-11-27")
    run_here(load_job(job_file("tags.yaml", output={"path": "tags/{{ ds }}"}), datetime(2026, 11, 27).date()))
    files = [
        job_file("docs.yaml", engine={"kind": "echo", "echo": {"fail_at_start": "no GPU"}}, run={"max_restarts": 0}),
        tmp_path / "none.yaml",
        job_file("tags.yaml", output={"path": "tags/{{ ds }}"}),
    ]
    state, name = by_hand(job_files=[str(file) for file in files], date="2026-11-28")
    assert (state.name, exit_code_of(state), name) == ("Failed", 1, "nightly-2026-11-28")
    head, docs, none, tags = str(state.message).splitlines()
    assert head == "3 jobs: 1 failed, 1 refused, 1 completed."
    assert docs.startswith("docs: failed. ")
    assert "no GPU" in docs
    assert none.startswith("none: refused. The job file ")
    assert tags.startswith("tags: completed. All 6 rows are accounted for. Against 2026-11-27: ")
    assert (tmp_path / "tags/2026-11-28/_SUCCESS").exists()


def test_a_backfill_runs_the_missing_dates_in_one_run(job_file: WriteFile, tmp_path: Path) -> None:
    for day in ("2026-11-01", "2026-11-03"):
        rows_of(tmp_path, day)
    file = str(job_file(input={"ready": {"wait": "5h"}}))
    run_here(load_job(file, datetime(2026, 11, 1).date()))
    state, name = by_hand(job_file=file, date="2026-11-01", until="2026-11-03")
    assert (state.name, name) == ("Refused", "docs-2026-11-01-to-2026-11-03")
    head, second, third = str(state.message).splitlines()
    assert head == "2 jobs: 1 refused, 1 completed."
    assert second.startswith("docs 2026-11-02: refused. The input is not complete: ")
    assert third.startswith("docs 2026-11-03: completed. All 6 rows are accounted for. Against 2026-11-01: ")
    rows_of(tmp_path, "2026-11-02")
    assert by_hand(job_file=file, date="2026-11-02", until="2026-11-02")[0].name == "Completed"
    state, _ = by_hand(job_file=file, date="2026-11-01", until="2026-11-03")
    assert state.message == "Every date is complete already."


def test_a_marker_that_arrives_lets_the_run_begin(job_file: WriteFile, tmp_path: Path) -> None:
    rows_of(tmp_path, "2026-11-28")
    file = job_file(input={"ready": {"marker": "_SUCCESS", "wait": "60s"}})
    timer = threading.Timer(4, (tmp_path / "data/dt=2026-11-28/_SUCCESS").touch)
    timer.start()
    state, _ = by_hand(job_file=str(file), date="2026-11-28")
    timer.join()
    assert state.name == "Completed"
    assert state.state_details.flow_run_id is not None
    with get_client(sync_client=True) as client:
        lines = [line.message for line in log_of(client.read_flow_run(state.state_details.flow_run_id))]
    assert any("Waiting for the input" in line and "dt=2026-11-28/_SUCCESS is not there" in line for line in lines)
    assert any(line.startswith("The input is complete, after ") for line in lines)


def test_a_night_on_a_worker(
    job_file: WriteFile, tmp_path: Path, prefect_server: Server, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule with a short interval, in a zone where it is another day, starts the job of its date; a run that is
    cancelled while it waits ends at once; a backfill that was submitted runs here, too."""
    zone = "Pacific/Kiritimati" if datetime.now(UTC).hour >= 10 else "Pacific/Pago_Pago"  # not the date of UTC
    today = datetime.now(ZoneInfo(zone)).date()
    for day in (today, "2026-11-01"):
        rows_of(tmp_path, day)
    docs = job_file()
    job_file("late.yaml", input={"ready": {"marker": "_SUCCESS", "wait": "5h"}}, output={"path": "late/{{ ds }}"})
    often = IntervalSchedule(interval=timedelta(seconds=20), timezone=zone)
    with worker(prefect_server.url, tmp_path):
        with deployed(often, pool, tmp_path, job_file="docs.yaml") as night:
            (done,) = eventually(lambda: runs_of(night)[:1], lambda runs: bool(runs) and _is_over(runs[0]), 120)
        assert (done.state_name, done.name) == ("Completed", f"docs-{today}")
        assert (tmp_path / f"out/dt={today}/_SUCCESS").exists()

        with deployed(None, pool, tmp_path) as plain, get_client(sync_client=True) as client:
            given = {"job_file": "late.yaml", "date": "2026-11-01"}
            run = cast(FlowRun, run_deployment(plain, timeout=0, as_subflow=False, parameters=given))
            eventually(lambda: _says(run, "Waiting for the input"), bool, 120)
            client.set_flow_run_state(run.id, Cancelling())
            ended = eventually(lambda: client.read_flow_run(run.id), _is_over, 120)
            assert ended.state_name == "Cancelled"
            assert not (tmp_path / "late").exists()

            monkeypatch.setenv("PREFECT_API_URL", prefect_server.url)
            span = ("--from", "2026-11-01", "--to", "2026-11-01")
            submitted = batchjobs("backfill", docs, *span, "--submit", "--deployment", "nightly/night")
            assert submitted.returncode == 0, submitted.stderr
            eventually((tmp_path / "out/dt=2026-11-01/_SUCCESS").exists, bool, 120)
            (second,) = [one for one in runs_of(plain) if one.id != run.id]
    assert f"({second.id}) for 1 of 1 dates" in submitted.stdout


def _is_over(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_final()


def _says(run: FlowRun, text: str) -> bool:
    with get_client(sync_client=True) as client:
        mine = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id]))
        return any(text in line.message for line in client.read_logs(log_filter=mine))
