"""`run.deadline` and `run.max_cost_usd`: what they mean for a run, and when a job is refused because of them.

A job is refused only if even the low end of its estimate is beyond a limit. What may fit is begun: it stops in time,
and the next run goes on. `--force` begins also what cannot fit. An estimate that is not known refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from batchjobs.accounts.units import clock, dollars, duration
from batchjobs.errors import Refused, SpecError
from schemas.deadline import parse_deadline
from schemas.figures import Estimate, Interval
from schemas.job import JobSpec

# Seconds from the end of the drain to the end of the run: open parts and the journal are published, the engine's
# processes end, the summary is written. A second on a local disk, some on an object store.
PUBLISH_S = 5.0


@dataclass(frozen=True)
class Limits:
    """The limits of one run, as moments and dollars. Without any, it has no end and no budget."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))  # the run, its input being there
    deadline: datetime | None = None  # the run is over by then
    is_of_this_run: bool = False  # the deadline is a date: the same command cannot go on after it
    max_cost_usd: float | None = None
    usd_per_hour: float | None = None  # of one replica
    drain_s: float = 0.0  # that running requests get after a stop

    @property
    def last_s(self) -> float:
        """How long before a limit the stop has to be asked: for what still runs, and to publish."""
        return self.drain_s + PUBLISH_S

    @property
    def budget_s(self) -> float | None:
        """Seconds of engines that the budget buys, all replicas together; None if they are not limited."""
        if self.max_cost_usd is None or not self.usd_per_hour:
            return None
        return self.max_cost_usd / self.usd_per_hour * 3600

    @property
    def deadline_text(self) -> str:
        """`run.deadline (06:30)`, in local time."""
        assert self.deadline is not None
        return f"run.deadline ({clock(self.deadline, self.began)})"

    @property
    def budget_text(self) -> str:
        """`run.max_cost_usd ($5.00)`."""
        assert self.max_cost_usd is not None
        return f"run.max_cost_usd ({dollars(self.max_cost_usd)})"


def limits_of(job: JobSpec, began: datetime) -> Limits:
    """The limits of a run of `job` that begins at `began` (with its zone)."""
    written = None if job.run.deadline is None else parse_deadline(job.run.deadline)
    return Limits(
        began=began,
        deadline=None if written is None else moment_of(written, began),
        is_of_this_run=isinstance(written, datetime),
        max_cost_usd=job.run.max_cost_usd,
        usd_per_hour=job.cost.usd_per_hour if job.cost is not None else None,
        drain_s=job.run.drain_seconds,
    )


def moment_of(written: time | datetime | timedelta, began: datetime) -> datetime:
    """When that is. A time of day is the next one in this machine's zone; a date without an offset is local, too."""
    if isinstance(written, timedelta):
        return began.astimezone(UTC) + written
    if isinstance(written, datetime):
        return written.astimezone(UTC)  # of one without a zone, this machine's is assumed
    today = began.astimezone().date()
    moments = [moment for days in (0, 1) for moment in _on(today + timedelta(days=days), written)]
    return next(moment for moment in moments if moment > began)


def _on(day: date, at: time) -> list[datetime]:
    """When this machine's clocks show `at` on that day: twice, if they are set back then. A time that they skip is the
    one that they show in its place: 03:30 for 02:30."""
    both = sorted(datetime.combine(day, at.replace(fold=fold)).astimezone(UTC) for fold in (0, 1))
    return [moment for moment in both if moment.astimezone().time() == at] or both[1:]


def refuse_without_room(limits: Limits, replicas: int) -> None:
    """Raise SpecError if a run could not even begin to work: the deadline has passed, or a stop takes longer."""
    last = f"of which the last {duration(limits.last_s)} are for the end (run.drain_seconds is {limits.drain_s:g})"
    if limits.deadline is not None:
        left = (limits.deadline - limits.began).total_seconds()
        if left <= 0:
            moment = limits.deadline.astimezone().isoformat(timespec="minutes")
            raise SpecError(f"run.deadline: found {moment}, which has passed; allowed: a later one. {_UNCHANGED}")
        if left <= limits.last_s:
            raise SpecError(f"run.deadline: it leaves {duration(left)}, {last}: nothing could be done. {_UNCHANGED}")
    if limits.budget_s is not None and (each := limits.budget_s / max(1, replicas)) <= limits.last_s:
        raise SpecError(
            f"run.max_cost_usd: {dollars(limits.max_cost_usd or 0)} buys {duration(each)} of each replica, "
            f"{last}: nothing could be done. {_UNCHANGED}"
        )


_UNCHANGED = "Nothing was changed."


def refuse_beyond(limits: Limits, foreseen: Estimate | None, force: bool) -> None:
    """Raise Refused if even the low end of the estimate is beyond a limit, unless that was asked for."""
    problems = [] if force or foreseen is None else _beyond(limits, foreseen)
    if problems:
        assert foreseen is not None
        raise Refused(
            f"{'; and '.join(problems)}. ({foreseen.basis}) {_UNCHANGED} Raise the limit, or go anyway with --force: "
            "the run stops in time, what it has done stays, and the next run goes on."
        )


def _beyond(limits: Limits, foreseen: Estimate) -> list[str]:
    problems, left = [], _seconds_of(limits)
    if left is not None and foreseen.seconds is not None and foreseen.seconds.low > left:
        problems.append(f"The job needs {_time(foreseen)}, but {limits.deadline_text} leaves {duration(left)}")
    if limits.max_cost_usd is not None and foreseen.usd is not None and foreseen.usd.low > limits.max_cost_usd:
        problems.append(f"The job costs {_money(foreseen)}, more than {limits.budget_text}")
    return problems


def _seconds_of(limits: Limits) -> float | None:
    return None if limits.deadline is None else (limits.deadline - limits.began).total_seconds()


def _time(foreseen: Estimate) -> str:
    assert foreseen.seconds is not None
    return _in_words(foreseen.seconds, foreseen.is_bound, duration)


def _money(foreseen: Estimate) -> str:
    assert foreseen.usd is not None
    return _in_words(foreseen.usd, foreseen.is_bound, dollars)


def _in_words(values: Interval, is_bound: bool, unit: Callable[[float], str]) -> str:
    if is_bound:
        return f"at least {unit(values.low)}"
    return f"{unit(values.expected)} ({unit(values.low)} to {unit(values.high)})"


def outlook(limits: Limits, foreseen: Estimate | None) -> list[str]:
    """What is to be said of the limits before the run, one line for each."""
    lines, left = [], _seconds_of(limits)
    if left is not None:
        known = foreseen is not None and foreseen.seconds is not None
        needs = f"the job needs {_time(foreseen)}" if foreseen and known else "how long the job takes is not known"
        lines.append(f"{limits.deadline_text}: {duration(left)} are left; {needs}.")
    if limits.max_cost_usd is not None:
        known = foreseen is not None and foreseen.usd is not None
        lines.append(
            f"{limits.budget_text}: "
            + (f"the job costs {_money(foreseen)}." if foreseen and known else "what the job costs is not known.")
        )
    return lines
