"""Where time and money went: engine-seconds by label, what was saved, what was foreseen, what an API would cost."""

from __future__ import annotations

from batchjobs.accounts.units import plural
from batchjobs.reports.views import Fact, Segment, Table
from batchjobs.reports.wording import UNKNOWN, change, count, money, seconds, share
from schemas.figures import Interval
from schemas.summary import Saving, Summary

_MEANINGS = {
    "startup": "from the start of the process to a ready engine",
    "productive": "generating, with enough to do",
    "starved": "free slots and nothing to run, though rows were left",
    "tail": "all fed, fewer than half the slots running",
    "draining": "after the last answer, or after a stop was asked for",
    "lost": "work of an attempt that died",
}


def segments(summary: Summary) -> list[Segment]:
    """The engine-seconds of this run in the order in which they pass; empty if no engine was held."""
    held, labels = summary.engine_seconds.held, summary.engine_seconds.model_dump(exclude={"held"})
    if not held:
        return []
    usd = summary.cost.usd_by_label
    return [
        Segment(
            label,
            100 * labels[label] / max(held, sum(labels.values())),
            seconds(labels[label]) if labels[label] else "0 s",
            share(labels[label] / held),
            money(usd.get(label)) if usd else "",
            meaning,
        )
        for label, meaning in _MEANINGS.items()
    ]


def wall_clock(summary: Summary) -> list[Fact]:
    """The same run as whoever waited for it saw it."""
    s = summary.seconds
    if not s.wall:
        return []
    waiting = [("waiting for devices", s.waiting)] if s.waiting else []
    phases = (
        ("plan", s.plan),
        *waiting,
        ("engine start", s.engine_start),
        ("generating", s.generating),
        ("finish", s.finish),
    )
    return [Fact(name, seconds(length) if length else "0 s") for name, length in phases]


def saved(summary: Summary) -> Table:
    """What this run found done already."""
    s = summary.saved
    table = Table(
        ["Saved by", "rows", "prompt tokens", "output tokens", "engine time, estimated", *_priced(summary)],
        frozenset(range(1, 6)),
    )
    kinds: tuple[tuple[str, Saving], ...] = (
        ("resuming: rows of earlier runs", s.resume),
        ("identical rows answered once", s.duplicates),
        ("prefix cache", s.prefix_cache),
    )
    for name, saving in kinds:
        if saving.rows or saving.prompt_tokens or saving.output_tokens:
            counts = [count(saving.rows), count(saving.prompt_tokens), count(saving.output_tokens)]
            price = [money(saving.usd)] if _priced(summary) else []
            table.rows.append([name, *counts, seconds(saving.engine_seconds), *price])
    return table


def _priced(summary: Summary) -> list[str]:
    return ["dollars"] if summary.cost.usd_total is not None else []


def prices(summary: Summary) -> list[Fact]:
    """Dollars by what they bought; empty without a price."""
    c = summary.cost
    if c.usd_total is None:
        return []
    facts = [
        Fact("all runs", money(c.usd_total)),
        Fact("this run", money(c.usd_this_run)),
        Fact("per 1,000 rows that are ok", money(c.usd_per_1k_rows)),
        Fact("per 1M input tokens", money(c.usd_per_1m_input_tokens)),
        Fact("per 1M output tokens", money(c.usd_per_1m_output_tokens)),
    ]
    if c.usd_at_api_price is not None:
        facts.append(Fact("its tokens at the API price", money(c.usd_at_api_price)))
        facts.append(Fact("API against here", _compared(c.usd_total, c.usd_at_api_price)))
    return facts


def _compared(here: float, there: float) -> str:
    return f"{there / here:.3g} times" if here else UNKNOWN


def foreseen(summary: Summary) -> Table | None:
    """What the plan said against what came; None if nothing was foreseen."""
    estimate = summary.foreseen
    if estimate is None or (estimate.seconds is None and estimate.usd is None):
        return None
    table = Table(["", "foreseen", "at least", "at most", "came to", "off by"], frozenset(range(1, 6)))
    worked = summary.seconds.wall - summary.seconds.waiting
    came = ((estimate.seconds, worked, seconds), (estimate.usd, summary.cost.usd_this_run, money))
    for name, (interval, actual, words) in zip(("wall clock of this run", "cost of this run"), came, strict=True):
        if interval is not None:
            limits = [words(interval.expected), words(interval.low), words(interval.high)]
            if not _within(interval, actual):
                table.marks[len(table.rows)] = "warn"
            table.rows.append([name, *limits, words(actual), change(interval.expected, actual)])
    return table


def _within(interval: Interval, actual: float | None) -> bool:
    return actual is None or interval.low <= actual <= interval.high


def work(summary: Summary) -> list[Fact]:
    """Rows and tokens that the time was spent on."""
    r, t, e = summary.rows, summary.tokens, summary.engine
    rows = f"{count(r.generated)} generated, {count(r.deduplicated)} copied from identical rows, "
    rows += f"{count(r.reused)} from earlier runs, {count(r.rejected)} rejected before the engine"
    recomputed = f"; {plural(t.recomputed, 'token')} computed again after them" if t.recomputed else ""
    preempted = UNKNOWN if e.preemptions is None else f"{count(e.preemptions)}{recomputed}"
    cached = f"{count(t.cached)} of the prompt tokens came from the prefix cache"
    return [
        Fact("rows of this run", UNKNOWN if summary.state == "running" else rows),
        Fact("tokens of the job", f"{count(t.prompt)} prompt and {count(t.output)} output; {cached}"),
        Fact("preemptions", preempted),
        Fact(
            "order of rows",
            f"{summary.order.strategy}: {summary.order.reason}" if summary.order.strategy else UNKNOWN,
        ),
    ]
