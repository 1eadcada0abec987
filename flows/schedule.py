"""For which night a flow run is: the date of its scheduled start in its schedule's zone, and whether it is too late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import DeploymentSchedule, FlowRun
from prefect.context import FlowRunContext

from batchjobs.accounts.units import duration
from batchjobs.errors import SpecError
from schemas.deadline import parse_duration

_BY_SCHEDULE = "SCHEDULE"  # what Prefect's scheduler writes into `created_by.type`


@dataclass(frozen=True)
class Start:
    """When the current flow run was to start."""

    scheduled: datetime  # in the zone of its schedule
    is_first_try_of_schedule: bool  # not by hand, and not a retry

    @property
    def day(self) -> date:
        """The date of the night."""
        return self.scheduled.date()


def scheduled_start(timezone: str | None) -> Start:
    """The start that the current flow run was scheduled for, in `timezone`, else in its schedule's, else in UTC.

    A retry keeps the start of the first try, so it is still for the same night. Raises SpecError for an unknown zone.
    """
    context = FlowRunContext.get()
    assert context is not None
    run = context.flow_run
    assert run is not None
    zone = _zone(timezone) if timezone is not None else _zone_of(run)
    by_schedule = run.created_by is not None and run.created_by.type == _BY_SCHEDULE
    scheduled = (run.expected_start_time or datetime.now(UTC)).astimezone(zone)
    return Start(scheduled, by_schedule and run.run_count <= 1)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise SpecError(f"timezone: found {name!r}; allowed: a name such as Europe/Berlin or UTC") from None


def _zone_of(run: FlowRun) -> ZoneInfo:
    """The zone of the schedule that made the run; of a run by hand, that of its deployment's schedules."""
    if run.deployment_id is None:
        return ZoneInfo("UTC")
    with get_client(sync_client=True) as client:
        schedules = client.read_deployment(run.deployment_id).schedules
    mine = [schedule for schedule in schedules if _made(schedule, run)] or schedules
    zones = [zone for schedule in mine if (zone := _written(schedule.schedule)) is not None]
    return ZoneInfo(zones[0] if zones else "UTC")


def _made(schedule: DeploymentSchedule, run: FlowRun) -> bool:
    """By its id or, since a deployment that is made anew has new ones, by its slug."""
    by = run.created_by
    return by is not None and (
        schedule.id == by.id or (schedule.slug is not None and schedule.slug == by.display_value)
    )


def _written(schedule: Any) -> str | None:
    """The zone that a cron, interval or rrule schedule has."""
    zone: str | None = getattr(schedule, "timezone", None)
    return zone


def too_late(start: Start, latest_start: str | None) -> str | None:
    """Why a run is not to start any more, or None. Only the first try of a scheduled run is ever too late.

    Raises SpecError if `latest_start` is not a duration.
    """
    try:
        most = None if latest_start is None else parse_duration(latest_start)
    except ValueError as problem:
        raise SpecError(f"latest_start: {problem}") from None
    now = datetime.now(UTC)
    late = now - start.scheduled.astimezone(UTC)
    if most is None or not start.is_first_try_of_schedule or late <= most:
        return None
    form = "%Y-%m-%d %H:%M %Z"
    return (
        f"Skipped: it was to start at {start.scheduled:{form}} and started {duration(late.total_seconds())} later, at "
        f"{now.astimezone(start.scheduled.tzinfo):{form}}; latest_start is {latest_start}."
    )
