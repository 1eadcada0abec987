"""The flow `nightly`: job files, run on a schedule for the date of the night, or by hand for dates that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed

from batchjobs.comparison.text import against
from batchjobs.dates import parse_date
from batchjobs.errors import BatchjobsError, Refused, SpecError
from batchjobs.nights import Night, Outcome, dated_nights, dates, in_turn, is_complete, worst
from batchjobs.spec import load_job
from flows.logs import expect_failed_states
from flows.schedule import Start, scheduled_start, too_late
from flows.steps import Work, ended_by, final_state, work_through
from schemas.job import JobSpec
from schemas.summary import Summary


def _run_name() -> str:
    """The job file's name, or `nightly` for several, and the night that the run is for."""
    given = flow_run.parameters
    files = _files(given["job_file"], given["job_files"])
    name = files[0].stem if len(files) == 1 else "nightly"
    if given["until"] is not None:
        return f"{name}-{given['date']}-to-{given['until']}"
    try:
        return f"{name}-{given['date'] or scheduled_start(given['timezone']).day}"
    except Refused:  # of which the run itself tells
        return name


@flow(name="nightly", flow_run_name=_run_name, persist_result=False)
def nightly(
    job_file: str | None = None,
    job_files: list[str] | None = None,
    date: str | None = None,
    until: str | None = None,
    latest_start: str | None = "12h",
    timezone: str | None = None,
    force: bool = False,
) -> State[Any]:
    """Run the job in a job file. The file is read when the run starts, so editing it needs no new deployment.

    Args:
        job_file: Path of the job file (YAML), absolute or relative to the deployment's working directory.
        job_files: Several of them, which run one after the other. One that fails does not keep the others from running.
        date: The date that the job file's date variables stand for, such as 2026-11-28. Default: that of the scheduled
            start, in the schedule's time zone.
        until: Together with `date`: run all dates from `date` to this one whose results are not complete, oldest first.
        latest_start: A scheduled run that starts later than that after its scheduled time skips itself. Null: never.
        timezone: Time zone of the default date, such as Europe/Berlin. Default: the schedule's, else UTC.
        force: Run though deadline or budget cannot be met; it stops in time all the same, and the next night goes on.
    """
    expect_failed_states()
    try:
        files = _files(job_file, job_files)
        if not files:
            raise SpecError("job_file: missing; give the path of a job file, or several as job_files")
        if until is not None:
            return _in_turn(_missing(files, date, until), force)
        start = scheduled_start(timezone)
        reason = too_late(start, latest_start) if date is None else None
        if reason is not None:
            return Completed(name="Skipped", message=f"{reason} {_by_hand(start)}")
        day = parse_date(date, "date") if date is not None else None
        load = [partial(load_job, file, day, start.day) for file in files]
    except BatchjobsError as error:
        return ended_by(error)
    if len(files) == 1:
        return _alone(Work(load[0], False, force, None))
    return _in_turn([Night(file, job) for file, job in zip(files, load, strict=True)], force)


def _files(job_file: str | None, job_files: Sequence[str] | None) -> list[Path]:
    return [Path(file) for file in [*([job_file] if job_file is not None else []), *(job_files or [])]]


def _by_hand(start: Start) -> str:
    return f'To run it all the same, run the deployment with the parameter date "{start.day}".'


def _missing(files: Sequence[Path], date: str | None, until: str) -> list[Night]:
    """The dates of a backfill that are not complete, oldest first."""
    if date is None:
        raise SpecError("date: missing; until needs the first date too")
    days = dates(parse_date(date, "date"), parse_date(until, "until"))
    nights = [night for file in files for night in dated_nights(file, days)]
    return [night for night in sorted(nights, key=lambda night: str(night.day)) if not is_complete(night)]


def _alone(work: Work) -> State[Any]:
    state = work_through(work)
    return state.model_copy(update={"message": _compared(state.message or "", work.summary)})


def _in_turn(nights: Sequence[Night], force: bool) -> State[Any]:
    """Several jobs in this flow run; the final state is the worst of theirs."""
    if not nights:
        return Completed(message="Every date is complete already.")
    last: list[State[Any]] = []

    def run(job: JobSpec) -> Summary:
        which = f" for {job.date}" if job.date is not None else ""
        get_run_logger().info("%s%s (%d of %d).", job.name, which, len(last) + 1, len(nights))
        work = Work(lambda: job, False, force, None)
        last.append(work_through(work))
        if work.error is not None:
            raise work.error
        assert work.summary is not None
        return work.summary

    outcomes = in_turn(nights, run)
    message = _told(nights, outcomes)
    if outcomes[-1].summary is not None and outcomes[-1].summary.stopped:
        return last[-1].model_copy(update={"message": message})
    return final_state(worst(outcomes), message)


def _told(nights: Sequence[Night], outcomes: Sequence[Outcome]) -> str:
    """How many ended how, and each one's outcome on a line of its own."""
    counts = Counter(outcome.state for outcome in outcomes)
    counted = [f"{count} {state}" for state, count in counts.items()]
    if left := len(nights) - len(outcomes):
        counted.append(f"{left} not begun")
    lines = [f"{o.night.label}: {o.state}. {_compared(o.message, o.summary)}" for o in outcomes]
    return "\n".join([f"{len(nights)} jobs: {', '.join(counted)}.", *lines])


def _compared(message: str, summary: Summary | None) -> str:
    """The message, and what the job is against the night before, unless a breach says that already."""
    if summary is None or summary.previous is None or " Against the run " in message:
        return message
    return f"{message} {against(summary.previous)}"
