"""How long a run still needs: first as foreseen, then as measured."""

from __future__ import annotations

from batchjobs.accounts.figures import RunFigures
from schemas.figures import Estimate

_ENOUGH_S = 3.0  # of generating; what was seen in less says nothing
_ALL_MEASURED = 0.1  # share of the rows from which on only this run itself counts


def seconds_left(
    run: RunFigures, todo: int, done: int, running: int, foreseen: Estimate | None, elapsed_s: float
) -> float | None:
    """Seconds until the last of `todo` rows is done; None if nobody can know yet.

    `done` of them are, `running` are in the engines and count half. The pace is that of the whole run while engines had
    requests, so neither starts nor the latest few seconds disturb it. `elapsed_s`, since the run began, is compared
    with what was foreseen for all of it; a bound is no forecast.
    """
    measured, planned = _measured(run, todo, done, running), _planned(foreseen, elapsed_s)
    if measured is None or planned is None:
        return planned if measured is None else measured
    weight = min(1.0, done / todo / _ALL_MEASURED)
    return weight * measured + (1 - weight) * planned


def _measured(run: RunFigures, todo: int, done: int, running: int) -> float | None:
    answered, seconds = sum(attempt.answered for attempt in run.attempts), run.generating_s
    if todo <= done:
        return 0.0
    # Before as many are answered as run at once, only the shortest answers have been seen.
    if not done or seconds < _ENOUGH_S or answered < running:
        return None
    worked = min(done + running / 2, todo)
    return (todo - worked) / worked * seconds


def _planned(foreseen: Estimate | None, elapsed_s: float) -> float | None:
    if foreseen is None or foreseen.seconds is None or foreseen.is_bound:
        return None
    return max(0.0, foreseen.seconds.expected - elapsed_s)
