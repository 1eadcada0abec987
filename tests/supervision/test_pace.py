"""How long a run still needs."""

from __future__ import annotations

import pytest

from batchjobs.accounts.figures import AttemptFigures, RunFigures
from batchjobs.supervision.pace import seconds_left
from schemas.figures import Estimate, Interval

FORESEEN = Estimate(seconds=Interval(low=80, expected=100, high=120), basis="Measured.")


def run(generating_s: float, answered: int) -> RunFigures:
    """An engine that took 1,000 seconds to start."""
    attempt = AttemptFigures(ready_s=1000, first_fed=1000, last_ended=1000 + generating_s, answered=answered)
    return RunFigures(attempts=[attempt])


def test_the_start_of_an_engine_does_not_count_as_slowness() -> None:
    assert seconds_left(run(10, 200), todo=1000, done=200, running=0, foreseen=None, elapsed_s=1010) == 40


def test_what_runs_is_half_done() -> None:
    assert seconds_left(run(10, 150), todo=1000, done=150, running=100, foreseen=None, elapsed_s=1010) == 40


@pytest.mark.parametrize(("generating_s", "answered"), [(2, 200), (10, 99)])
def test_the_first_seconds_and_the_shortest_answers_say_nothing(generating_s: float, answered: int) -> None:
    begun = run(generating_s, answered)
    assert seconds_left(begun, todo=1000, done=answered, running=100, foreseen=None, elapsed_s=30) is None
    assert seconds_left(begun, todo=1000, done=answered, running=100, foreseen=FORESEEN, elapsed_s=30) == 70


def test_what_was_foreseen_gives_way_to_what_is_measured() -> None:
    def left(done: int) -> float | None:
        return seconds_left(run(10, done), todo=1000, done=done, running=0, foreseen=FORESEEN, elapsed_s=20)

    assert left(50) == pytest.approx((190 + 80) / 2)
    assert left(100) == 90
    assert left(1000) == 0


def test_a_bound_is_no_forecast() -> None:
    bound = FORESEEN.model_copy(update={"is_bound": True})
    assert seconds_left(RunFigures(), todo=1000, done=0, running=0, foreseen=bound, elapsed_s=5) is None
