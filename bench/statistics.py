"""Ratios of what was measured side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """A median with the whole range: with five rounds, no narrower interval can be trusted."""

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 2) -> str:
        """As the tables show it."""
        if self.count == 1:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f} … {self.high:,.{digits}f})"


def spread(values: Iterable[float]) -> Spread:
    """Median and range; raises ValueError if there is none."""
    found = list(values)
    if not found:
        raise ValueError("nothing was measured")
    return Spread(statistics.median(found), min(found), max(found), len(found))


def paired(records: Iterable[Record], ours: str, theirs: str, value: Callable[[Record], float]) -> list[float]:
    """`value` of ours over theirs, round by round; rounds in which one of them is missing are left out."""
    by_round: dict[int, dict[str, Record]] = {}
    for record in records:
        by_round.setdefault(record["round"], {})[record["contender"]] = record
    return [value(found[ours]) / value(found[theirs]) for found in by_round.values() if {ours, theirs} <= found.keys()]
