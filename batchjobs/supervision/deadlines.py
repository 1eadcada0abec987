"""When a replica counts as hung: how long its start, its first step and every later sign of life may take."""

from __future__ import annotations

import time

from batchjobs.accounts.figures import AttemptFigures
from schemas.job import RunSpec

_SIGNS = frozenset({"progress", "ended", "ready"})  # what only a working engine's loop sends
_FIRST_STEP = 5  # the first step may compile and warm up: this many times as long
_SLOWEST = 10  # a step may take this many times as long as the slowest so far, on top of `stall_seconds`


class Deadlines:
    """The loop of a replica sends a sign each second, but not while an engine step lasts: silence is a long step.

    So the time that is allowed follows from the work: ten times the longest step of this engine, and a fixed part.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._start_s, self._stall_s = spec.start_seconds, spec.stall_seconds
        self._last = time.monotonic()
        self._slowest = 0.0
        self._signs = 0

    def sign(self, kind: str) -> None:
        """A message came."""
        if kind in _SIGNS:
            now = time.monotonic()
            if kind != "ready":
                self._slowest = max(self._slowest, now - self._last)
                self._signs += 1
            self._last = now

    def missed(self, figures: AttemptFigures) -> str | None:
        """The deadline that has passed, as a sentence; None if there is none."""
        silent = time.monotonic() - self._last
        if figures.ready_s is None:
            return f"the engine was not ready after {silent:.0f} s" if silent > self._start_s else None
        allowed = self._stall_s + _SLOWEST * self._slowest if self._signs else self._stall_s * _FIRST_STEP
        if silent <= allowed:
            return None
        return f"the engine hangs: no step ended for {silent:.0f} s, {len(figures.in_flight)} rows in flight"
