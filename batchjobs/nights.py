"""Several jobs one after the other: the job files of one night, or one job file for the dates that are missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from batchjobs.accounts.units import dollars
from batchjobs.errors import BatchjobsError, SpecError, StoppedWaiting
from batchjobs.spec import load_job, resolve_references
from batchjobs.storage.output import SUCCESS
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from schemas.summary import EXIT_CODES, State, Summary

logger = logging.getLogger("batchjobs")

_WORST_FIRST: tuple[State, ...] = ("failed", "refused", "partial", "completed")


@dataclass(frozen=True)
class Night:
    """A job file and the date that it is for."""

    file: Path
    load: Callable[[], JobSpec]  # raises SpecError
    day: date | None = None  # None if the file alone tells them apart

    @property
    def label(self) -> str:
        """What people call it."""
        return self.file.stem if self.day is None else f"{self.file.stem} {self.day}"


@dataclass(frozen=True)
class Outcome:
    """How one of them ended; without a summary if it was refused or could not go on."""

    night: Night
    state: State
    message: str
    summary: Summary | None = None


def dates(first: date, last: date) -> list[date]:
    """Every date from the first to the last, both included; raises SpecError if there is none."""
    if last < first:
        raise SpecError(f"The last date, {last}, is before the first, {first}; allowed: the same or a later one")
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def dated_nights(file: Path, days: Iterable[date]) -> list[Night]:
    """One night for each date, its job read now; raises SpecError if the job file cannot be used for them."""
    return [_loaded(file, day) for day in days]


def _loaded(file: Path, day: date) -> Night:
    job = unhurried(load_job(file, day))
    return Night(file, lambda: job, day)


def unhurried(job: JobSpec) -> JobSpec:
    """The job without waiting for its input: what is not there for an old date will not come by itself."""
    ready = job.input.ready
    if ready is None or ready.wait is None:
        return job
    found = job.input.model_copy(update={"ready": ready.model_copy(update={"wait": None})})
    return job.model_copy(update={"input": found})


def is_complete(night: Night) -> bool:
    """Whether its output says so; raises StorageFailed if nobody can look."""
    output = resolve_references(night.load()).output
    return open_store(output.path, output.storage_options).read(SUCCESS) is not None


def in_turn(nights: Sequence[Night], run: Callable[[JobSpec], Summary]) -> list[Outcome]:
    """Run them one after the other. One that fails does not keep the others from running; a stop does.

    A job file that is refused for two dates in a row with the same words is not tried for more of them.
    """
    outcomes: list[Outcome] = []
    refused: dict[Path, str] = {}  # by file, what was said the last time
    hopeless: set[Path] = set()
    for night in nights:
        if night.file in hopeless:
            outcomes.append(Outcome(night, "refused", "Not tried: it would be refused for the same reason."))
            continue
        outcome, was_stopped = _one(night, run)
        outcomes.append(outcome)
        if outcome.state == "refused":
            if refused.get(night.file) == outcome.message:
                hopeless.add(night.file)
            refused[night.file] = outcome.message
        else:
            refused.pop(night.file, None)
        if was_stopped:
            break
    return outcomes


def _one(night: Night, run: Callable[[JobSpec], Summary]) -> tuple[Outcome, bool]:
    """Its outcome, and whether somebody has asked to stop."""
    try:
        summary = run(night.load())
    except BatchjobsError as error:
        state: State = next((s for s in _WORST_FIRST if EXIT_CODES[s] == error.exit_code), "failed")
        return Outcome(night, state, str(error)), isinstance(error, StoppedWaiting)
    except Exception as bug:
        logger.exception("%s ended by an error that nobody expected.", night.label)
        return Outcome(night, "failed", f"{type(bug).__name__}: {bug}"), False
    return Outcome(night, summary.state, summary.message, summary), summary.stopped


def worst(outcomes: Sequence[Outcome]) -> State:
    """The state that all of them together have: failed, refused, partial or completed, in this order."""
    found = {outcome.state for outcome in outcomes}
    return next((state for state in _WORST_FIRST if state in found), "completed")


def table(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str]]:
    """Date (or job file), state, rows and dollars of each; `–` for what is not known."""
    return [
        (
            str(o.night.day) if o.night.day is not None else o.night.label,
            o.state,
            f"{o.summary.rows.ok:,} ok, {o.summary.rows.error:,} errors" if o.summary is not None else "–",
            dollars(usd) if o.summary is not None and (usd := o.summary.cost.usd_total) is not None else "–",
        )
        for o in outcomes
    ]
