"""Each second that an engine was held has one label."""

from __future__ import annotations

from collections.abc import Iterable

from batchjobs.accounts.figures import AttemptFigures
from schemas.summary import EngineSeconds

LABELS = ("startup", "productive", "starved", "tail", "draining", "lost")


def count_engine_seconds(attempts: Iterable[AttemptFigures]) -> EngineSeconds:
    """The labels of all attempts; they add up to the seconds held."""
    total = EngineSeconds()
    for attempt in attempts:
        for name, seconds in {"held": attempt.held_s, **labelled(attempt)}.items():
            setattr(total, name, getattr(total, name) + seconds)
    return total


def labelled(attempt: AttemptFigures) -> dict[str, float]:
    """Seconds of one attempt by label.

    Of one that died, what came before all finished rows were last saved keeps its labels; the death took the rest. Of
    one that left in order, what no lap of the replica names is its end.
    """
    if attempt.ready_s is None:
        return {"startup" if attempt.failure is None else "lost": attempt.held_s}
    told = attempt.last.get("seconds" if attempt.failure is None else "safe_seconds", {})
    laps = {name: told[name] for name in LABELS if name in told}
    # The engine was ready a little before its dispatcher heard so, and the laps begin there.
    startup = min(attempt.ready_s, attempt.held_s - sum(laps.values()))
    end = "draining" if attempt.failure is None else "lost"
    laps[end] = laps.get(end, 0.0) + attempt.held_s - startup - sum(laps.values())
    return {"startup": startup, **laps}
