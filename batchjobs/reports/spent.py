"""What a run took and what it spared, in lines: seconds and dollars by label, forecasts, the run before."""

from __future__ import annotations

from batchjobs.accounts.units import duration
from batchjobs.comparison.text import number, relative
from schemas.summary import Change, Saving, Summary

_WIDEST = 160  # characters of a setting that differs

Line = tuple[str, str]


def foreseen(s: Summary) -> list[Line]:
    """How long it was expected to take; nothing if that was not known."""
    if s.foreseen is None or s.foreseen.seconds is None:
        return []
    low, expected, high = s.foreseen.seconds.low, s.foreseen.seconds.expected, s.foreseen.seconds.high
    bound = " (low is a bound, nothing was measured)" if s.foreseen.is_bound else ""
    took = duration(s.seconds.wall - s.seconds.waiting)
    said = f"{duration(low)} to {duration(high)}, expected {duration(expected)}{bound}; took {took}"
    return [("foreseen", said)]


def labels(s: Summary) -> list[Line]:
    """What the engines were held for, the money beside the time."""
    held, seconds = s.engine_seconds.held, s.engine_seconds.model_dump(exclude={"held"})
    if not held:
        return []
    money = {label: f", ${usd:,.4f}" for label, usd in s.cost.usd_by_label.items()}
    return [
        (label, f"{duration(value)} ({value / held:.1%}){money.get(label, '')}")
        for label, value in seconds.items()
        if value
    ]


def savings(s: Summary) -> list[Line]:
    """Work that was done already."""
    ways = {
        "by going on": s.saved.resume,
        "identical rows": s.saved.duplicates,
        "prefix cache": s.saved.prefix_cache,
    }
    return [(way, _saving(saving)) for way, saving in ways.items() if saving.rows or saving.prompt_tokens]


def _saving(saving: Saving) -> str:
    rows = f"{saving.rows:,} rows" if saving.rows else ""
    prompt = f"{saving.prompt_tokens:,} prompt tokens"
    output = f"{saving.output_tokens:,} output tokens" if saving.output_tokens else ""
    time = f"about {duration(saving.engine_seconds)} of an engine" if saving.engine_seconds is not None else ""
    money = f"${saving.usd:,.4f}" if saving.usd is not None else ""
    return ", ".join(part for part in (rows, prompt, output, time, money) if part)


def dollars(s: Summary) -> list[Line]:
    """Money, as far as it is known."""
    c = s.cost
    pairs = (
        ("total", c.usd_total),
        ("this run", c.usd_this_run),
        ("per 1,000 rows", c.usd_per_1k_rows),
        ("per 1M input tokens", c.usd_per_1m_input_tokens),
        ("per 1M output tokens", c.usd_per_1m_output_tokens),
        ("same tokens from the API", c.usd_at_api_price),
    )
    expected = s.foreseen.usd if s.foreseen is not None else None
    return [
        *((name, f"${value:,.4f}") for name, value in pairs if value is not None),
        *(
            [("foreseen", f"${expected.low:,.4f} to ${expected.high:,.4f}, expected ${expected.expected:,.4f}")]
            if expected is not None
            else []
        ),
    ]


def previous(s: Summary) -> list[Line]:
    """What changed since; what went over a threshold comes first."""
    before = s.previous
    assert before is not None
    same = "the same settings" if before.same_settings else "other settings, so the figures compare two things"
    changes = sorted(before.changes, key=lambda change: change.breach is None)
    return [
        *([("date", before.date)] if before.date is not None else []),
        ("ended", f"{before.ended:%Y-%m-%d %H:%M} UTC; {same}"),
        *([("speed and cost", "one of the two generated too little to say something")] if before.is_small else []),
        *(("setting", _on_one_line(difference)) for difference in before.settings),
        *((change.figure, _change(change)) for change in changes),
    ]


def _on_one_line(difference: str) -> str:
    """A prompt has many lines; of a long difference the beginning and the end, since it ends with the new value."""
    line, half = " ".join(difference.split()), _WIDEST // 2
    return line if len(line) <= _WIDEST else f"{line[:half].rstrip()} … {line[-half:].lstrip()}"


def _change(change: Change) -> str:
    before, now = (number(value, change.unit) for value in (change.before, change.now))
    share = f" ({relative(change.relative)})" if change.relative is not None else ""
    return f"{before} -> {now}{share}" + (f". {change.breach}" if change.breach else "")
