"""Where a replica's seconds go."""

from __future__ import annotations

import time


class Stopwatch:
    """Laps of the engine's loop by label, from the ready engine on, and the generating window."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._labels: dict[str, float] = {}
        self._safe: dict[str, float] = {}
        self._first_fed: float | None = None
        self._last_answer: float | None = None

    def lap(self, label: str) -> None:
        """The time since the last lap was `label`."""
        now = time.monotonic()
        self._labels[label] = self._labels.get(label, 0.0) + now - self._last
        self._last = now

    def fed(self) -> None:
        """A request was fed."""
        if self._first_fed is None:
            self._first_fed = time.monotonic()

    def answered(self) -> None:
        """A request was answered."""
        self._last_answer = time.monotonic()

    def saved(self) -> None:
        """All that is finished is in a part or in the journal: a death takes only what comes after. Any thread may."""
        self._safe = dict(self._labels)

    def safe(self) -> dict[str, float]:
        """Seconds by label whose work a death cannot take."""
        return self._safe

    def seconds(self) -> dict[str, float]:
        """Seconds by label, and `generating`: from the first request fed to the last answer."""
        generating = (self._last_answer - self._first_fed) if self._first_fed and self._last_answer else 0.0
        return {**self._labels, "generating": generating}
