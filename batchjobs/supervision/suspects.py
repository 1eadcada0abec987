"""Which row kills the engine: those in flight at a death run again, sixteen at a time, then alone.

A row on which the engine died twice while it ran alone is quarantined. Everything else is cleared by finishing.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

_GROUP = 16
_DEATHS_ALONE = 2
_BROKEN = 3  # rows quarantined one after the other without a single success between them: it is the engine


class Suspects:
    """The rows under suspicion, over the lives of a run. Safe to use from several threads."""

    def __init__(self, quarantined: dict[int, str]) -> None:
        """`quarantined` are the rows that earlier runs have set aside, each with the engine's last words."""
        self._quarantined = dict(quarantined)
        self._confirmed: dict[int, str] = {}  # of this run, with a success since: the engine is not to blame
        self._unconfirmed: dict[int, str] = {}
        self._alone: list[int] = []  # to be run one by one
        self._untested: list[int] = []  # to be run in groups
        self._deaths: dict[int, int] = {}  # of the engine with this row alone
        self._lock = threading.RLock()

    @property
    def quarantined(self) -> dict[int, str]:
        """The rows set aside, each with the engine's last words."""
        with self._lock:
            return dict(self._quarantined)

    def take_confirmed(self) -> dict[int, str]:
        """Rows set aside since the last call on which the engine is known not to be to blame."""
        with self._lock:
            confirmed, self._confirmed = self._confirmed, {}
            return confirmed

    def groups(self) -> list[list[int]]:
        """The rows to run first in the next life, group by group; each group runs without any other row."""
        with self._lock:
            rest = [self._untested[i : i + _GROUP] for i in range(0, len(self._untested), _GROUP)]
            return [[row] for row in self._alone] + rest

    def died(self, in_flight: Collection[int], words: str) -> None:
        """The engine died, without evidence of memory, while these rows were in it."""
        rows = sorted(in_flight)
        with self._lock:
            if len(rows) == 1 and rows[0] in self._alone:
                self._died_alone(rows[0], words)
            elif len(rows) <= _GROUP:
                self._alone = [*rows, *(row for row in self._alone if row not in in_flight)]
                self._untested = [row for row in self._untested if row not in in_flight]
            else:
                self._untested = [*rows, *(row for row in self._untested if row not in in_flight)]

    def _died_alone(self, row: int, words: str) -> None:
        self._deaths[row] = self._deaths.get(row, 0) + 1
        if self._deaths[row] >= _DEATHS_ALONE:
            self._alone.remove(row)
            self._quarantined[row] = self._unconfirmed[row] = words

    def finished(self, rows: Iterable[int]) -> None:
        """The engine answered these rows: they are innocent, and the engine works."""
        with self._lock:
            self._confirmed |= self._unconfirmed
            self._unconfirmed.clear()
            if self._alone or self._untested:
                innocent = set(rows)
                self._alone = [row for row in self._alone if row not in innocent]
                self._untested = [row for row in self._untested if row not in innocent]

    @property
    def engine_is_broken(self) -> bool:
        """Whether row after row kills the engine, so that the rows cannot be to blame."""
        return len(self._unconfirmed) >= _BROKEN
