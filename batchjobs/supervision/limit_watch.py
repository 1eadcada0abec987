"""A run against its limits: when the stop is due, whether another engine may start, what is left in the end.

A run works until a limit, not until a forecast says that it will be missed: a forecast may err, and what is done by
then counts. The stop is asked so early that the run is over by its deadline, and that the seconds of all engines, the
last ones included, stay within the budget.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from batchjobs.accounts.figures import LimitReached, RunFigures
from batchjobs.accounts.units import dollars, duration
from batchjobs.supervision.dispatcher import StopSignal
from batchjobs.supervision.limits import Limits
from batchjobs.supervision.progress import Progress


class LimitWatch:
    """Asks for the stop of a run. Safe to use from the threads of several replicas."""

    def __init__(self, limits: Limits, figures: RunFigures, stop: StopSignal) -> None:
        self._limits, self._figures, self._stop = limits, figures, stop
        self._reached: str | None = None  # the limit, in words
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def look(self) -> list[str]:
        """Ask for the stop if it is due; what people are to be told of that."""
        with self._lock:
            if self._stop.asked or (near := self._near()) is None:
                return []
            self._reached = near
            self._stop.ask()
            return [f"{near} is near: no more rows are fed; the run ends within {duration(self._limits.last_s)}."]

    def may_start(self) -> bool:
        """Whether an engine that starts now would have time and money to work, if it starts as slowly as the slowest
        of this run did."""
        with self._lock:
            near = self._near(self._start_s(), 1)
            if near is not None and not self._stop.asked:
                self._reached = near
            return near is None

    def _start_s(self) -> float:
        """Seconds that the slowest engine of this run took to start; 0 while none has."""
        return max((attempt.ready_s or 0.0 for attempt in self._figures.attempts), default=0.0)

    def pause(self, seconds: float) -> float:
        """How much of a pause before the next start there is time for."""
        left = self._seconds_left()
        return seconds if left is None else max(0.0, min(seconds, left - self._limits.last_s))

    def _near(self, more_s: float = 0.0, more_engines: int = 0) -> str | None:
        """The limit that leaves no more than what the end of the run takes after `more_s` with some more engines."""
        limits, left = self._limits, self._seconds_left()
        if left is not None and left - more_s <= limits.last_s:
            return limits.deadline_text
        if limits.budget_s is not None:
            engines = len(self._figures.alive) + more_engines
            if self._figures.held_s + more_engines * more_s + engines * limits.last_s >= limits.budget_s:
                return limits.budget_text
        return None

    def _seconds_left(self) -> float | None:
        deadline = self._limits.deadline
        return None if deadline is None else (deadline - datetime.now(UTC)).total_seconds()

    def warnings(self, now: Progress) -> list[str]:
        """A line for each limit that will be missed at this pace, the first time that this is seen."""
        lines = []
        if now.ends_at and now.deadline and now.ends_at > now.deadline:
            late = duration((now.ends_at - now.deadline).total_seconds())
            lines.append(f"{self._limits.deadline_text} will be missed: at this pace the job needs {late} more.")
        if now.usd_forecast and now.max_cost_usd and now.usd_forecast > now.max_cost_usd:
            lines.append(
                f"{self._limits.budget_text} will be missed: at this pace the job costs {dollars(now.usd_forecast)}."
            )
        with self._lock:
            new = [line for line in lines if line.split(" ")[0] not in self._warned]
            self._warned.update(line.split(" ")[0] for line in new)
        return [f"{line} The run will stop in time; the next one goes on." for line in new]

    def outcome(self, last: Progress | None) -> LimitReached | None:
        """Why the run went no further, if that was a limit; `last` is how far it came."""
        if self._reached is None:
            return None
        if self._limits.is_of_this_run and self._reached == self._limits.deadline_text:
            then = "Set a later run.deadline and run again to go on."
        else:
            then = "Run the same command again to go on."
        return LimitReached(f"Stopped for {self._reached}", self._rest(last), then)

    def _rest(self, last: Progress | None) -> str:
        """What the shards that are left will take in the next run, the start of its engines included."""
        if last is None or last.seconds_left is None:
            return "how long the rest will take is not known yet"
        engines = len({attempt.replica for attempt in self._figures.attempts})
        seconds, price = last.seconds_left + self._start_s(), self._limits.usd_per_hour
        cost = f" and {dollars(seconds * engines * price / 3600)}" if price else ""
        return f"the rest will take about {duration(seconds)}{cost}"
