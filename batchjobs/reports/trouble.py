"""What went wrong: rows that failed, answers that look ill, attempts that died; and what took long."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchjobs.reports.evidence import Evidence
from batchjobs.reports.examples import Row
from batchjobs.reports.views import Table
from batchjobs.reports.wording import UNKNOWN, count, instant, ratio, seconds
from schemas.records import ErrorCode
from schemas.summary import Attempt, Percentiles, Summary

MOST_ATTEMPTS = 30  # shown
MOST_LOGS = 5  # ends of logs that are shown
MOST_QUARANTINED = 20
_MOST_WORDS = 300  # characters of a message that somebody else wrote


@dataclass(frozen=True)
class Group:
    """Rows of one kind, with how many there are."""

    name: str
    count: str
    share: str
    rows: list[Row]
    note: str = ""  # what the kind is
    mark: str = ""


@dataclass(frozen=True)
class Attempts:
    """The lives of engines."""

    table: Table
    left_out: int  # that did their work and are not shown
    logs: list[tuple[str, str]] = field(default_factory=list)  # name, last lines
    quarantined: list[tuple[int, str]] = field(default_factory=list)  # row, the engine's last words
    more_quarantined: int = 0


def errors(summary: Summary, evidence: Evidence) -> list[Group]:
    """Failed rows by error code, most frequent first."""
    return [
        Group(
            code, count(number), ratio(number, summary.rows.total), evidence.examples.errors.get(code, []), mark="bad"
        )
        for code, number in sorted(summary.errors.items(), key=lambda item: (-item[1], item[0]))
    ]


def health(summary: Summary, evidence: Evidence) -> list[Group]:
    """Answers that are cut, empty, invalid or repetitive."""
    h, examples = summary.health, evidence.examples
    known = bool(h.answers)
    answers = h.answers or summary.rows.ok
    cut = h.truncated if known else sum(summary.warnings.values())
    invalid = h.invalid if known else summary.errors.get(ErrorCode.INVALID_OUTPUT, 0)
    kinds = (
        ("truncated", cut, "by max_tokens or by the context"),
        ("empty", h.empty if known else None, "no text, or white space only"),
        ("invalid", invalid, "not the JSON that was asked for; examples are with the errors"),
        ("repetitive", h.repetitive if known else None, "zlib makes the end of the text more than 2.4 times smaller"),
    )
    return [
        Group(
            name,
            count(number),
            UNKNOWN if number is None else ratio(number, answers),
            examples.unhealthy.get(name, []),
            meaning,
            "warn" if number else "",
        )
        for name, number, meaning in kinds
    ]


def attempts(summary: Summary) -> Attempts:
    """Those that did not simply do their work, and the latest of the others."""
    every = summary.attempts
    shown = sorted(_most_telling(every), key=lambda attempt: attempt.attempt)
    table = Table(["Attempt", "replica", "started", "held", "answered", "ended", "then"], frozenset({0, 1, 3, 4}))
    for attempt in shown:
        if attempt.failure or attempt.cause is None:
            table.marks[len(table.rows)] = "warn"
        table.rows.append(_attempt(attempt))
    logs = [(f"attempt {a.attempt}", "\n".join(a.evidence)) for a in shown if a.evidence][-MOST_LOGS:]
    rows = sorted((row, words) for attempt in every for row, words in attempt.quarantined.items())
    quarantined = [(row, _short(words)) for row, words in rows[:MOST_QUARANTINED]]
    return Attempts(table, len(every) - len(shown), logs, quarantined, len(rows) - len(quarantined))


def _most_telling(every: list[Attempt]) -> list[Attempt]:
    return sorted(every, key=lambda a: (bool(a.failure or a.notes or a.quarantined), a.attempt))[-MOST_ATTEMPTS:]


def _attempt(a: Attempt) -> list[str]:
    ended = f"{a.cause}: {_short(a.failure)}" if a.failure else a.cause or "not yet, or its run was killed"
    then = "; ".join(_short(words) for words in [*a.notes, *([a.remedy] if a.remedy else [])])
    return [count(a.attempt), count(a.replica), instant(a.started), seconds(a.held_s), count(a.rows_done), ended, then]


def _short(words: str) -> str:
    return words if len(words) <= _MOST_WORDS else words[:_MOST_WORDS] + " …"


def latency(summary: Summary) -> Table | None:
    """Percentiles of the requests of this run; None if it generated none."""
    known = summary.latency
    if known.ttft_s.p50 is None:
        return None
    kinds: tuple[tuple[str, str, Percentiles], ...] = (
        ("queue", "from the feed to the first step", known.queue_s),
        ("first token (TTFT)", "from the feed, the queue included", known.ttft_s),
        ("each further token (TPOT)", "mean of one answer", known.tpot_s),
    )
    rows = [[name, *(seconds(value) for value in (p.p50, p.p95, p.p99)), meaning] for name, meaning, p in kinds]
    return Table(["", "P50", "P95", "P99", ""], frozenset({1, 2, 3}), rows)
