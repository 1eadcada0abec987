"""This run against the one before it."""

from __future__ import annotations

from dataclasses import dataclass

from batchjobs.reports.views import Table
from batchjobs.reports.wording import change, instant, number
from schemas.summary import Summary

MOST_SETTINGS = 40


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side."""

    ended: str  # when the other one did
    table: Table
    breaches: list[str]
    settings: list[str]  # those that differ
    more_settings: int
    same_settings: bool


def comparison(summary: Summary) -> Comparison | None:
    """None if there is no run before."""
    previous = summary.previous
    if previous is None:
        return None
    table = Table(["Figure", "before", "now", "change", ""], frozenset({1, 2, 3}))
    for each in previous.changes:
        if each.breach:
            table.marks[len(table.rows)] = "bad"
        moved = change(each.before, each.now)
        table.rows.append(
            [each.figure, number(each.before), number(each.now), moved, "exceeded" if each.breach else ""]
        )
    return Comparison(
        instant(previous.ended),
        table,
        [each.breach for each in previous.changes if each.breach],
        previous.settings[:MOST_SETTINGS],
        max(0, len(previous.settings) - MOST_SETTINGS),
        previous.same_settings,
    )
