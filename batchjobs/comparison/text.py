"""A comparison in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from batchjobs.accounts import baseline
from schemas.comparison import Agreement, Comparison, Example, HealthChange, LengthShift, Matched, SettingChange, Side
from schemas.figures import Interval
from schemas.summary import Change, Previous

_WIDEST = 60  # characters of a setting
_MOST_OF_AN_ANSWER = 300  # characters

Line = tuple[str, ...]


def text(comparison: Comparison) -> str:
    """All of it, section by section."""
    c = comparison
    lines = [_side("A", c.a), _side("B", c.b)]
    lines += _section("Settings that differ", [_setting(change) for change in c.settings] or [("none",)])
    lines += _section("Performance", _changes(c.performance))
    lines += _section("Cost", _changes(c.cost))
    lines += _section(f"Output health of {_pairs(c.matched)}", _health(c.health))
    lines += _section("Output tokens of those that both answered", _lengths(c.lengths))
    if c.agreement is not None:
        lines += _section(f"Agreement on the {c.agreement.rows:,} that both answered well", _agreement(c.agreement))
    if c.examples:
        lines += ["", "The most different"] + [line for example in c.examples for line in _example(example)]
    return "\n".join(lines + [f"\n{note}" for note in c.notes])


def against(previous: Previous) -> str:
    """A run against the one before it, at a glance: speed, cost and failed rows, where they say something."""
    need_time = () if previous.is_small else (baseline.TOKENS_PER_S, baseline.USD_PER_1K_ROWS)
    told = [
        f"{change.figure} {number(change.before, change.unit)} -> {number(change.now, change.unit)}"
        for change in previous.changes
        if change.figure in (*need_time, baseline.FAILED) and change.now is not None
    ]
    which = previous.date or f"the run that ended {previous.ended:%Y-%m-%d %H:%M} UTC"
    caveat = "" if previous.same_settings else " (other settings)"
    return f"Against {which}{caveat}: {', '.join(told) or 'nothing to compare'}."


def _side(name: str, side: Side) -> str:
    ended = f" {side.ended:%Y-%m-%d %H:%M} UTC" if side.ended else ""
    errors = ", ".join(f"{count:,} {code}" for code, count in side.errors.items())
    rows = f"{side.rows_ok:,} rows ok, {side.rows_error:,} errors" + (f" ({errors})" if errors else "")
    return f"{name}  {side.output}: {side.job}, {side.state}{ended}; {rows}"


def _section(title: str, rows: list[Line]) -> list[str]:
    """Rows in aligned columns: the first to the left, the others to the right."""
    if not rows:
        return []
    width = [max(len(row[n]) for row in rows if n < len(row)) for n in range(max(map(len, rows)))]
    cells = ([row[0].ljust(width[0]), *(cell.rjust(width[n]) for n, cell in enumerate(row[1:], 1))] for row in rows)
    return ["", title, *("  " + "  ".join(row).rstrip() for row in cells)]


def _setting(change: SettingChange) -> Line:
    before, now = (_cut("not set" if value is None else value, _WIDEST) for value in (change.before, change.now))
    return (f"{change.key}: {before} -> {now}",)


def _changes(changes: Iterable[Change]) -> list[Line]:
    rows = [(c.figure, number(c.before, c.unit), number(c.now, c.unit), relative(c.relative)) for c in changes]
    return [("", "A", "B", "change"), *rows] if rows else []


def number(value: float | None, unit: str) -> str:
    """A figure with its unit; `–` if it is not known."""
    if value is None:
        return "–"
    if unit == "share":
        return f"{value:.1%}"
    if unit == "usd":
        return f"${value:,.4f}"
    if unit == "bytes":
        return f"{value / 2**30:,.2f} GiB"
    if unit == "s":
        return f"{value * 1000:,.3g} ms" if value < 1 else f"{value:,.1f} s"
    return f"{value:,.0f}" if unit == "count" or value >= 1000 else f"{value:,.1f}"


def relative(value: float | None) -> str:
    """A relative change: `+12 %`."""
    return "" if value is None else f"{value:+.1%}"


def _pairs(matched: Matched) -> str:
    by = {"id": "id", "row": "row number", "request_hash": "identical request"}[matched.by]
    alone = f"; {matched.only_before:,} rows only in A, {matched.only_now:,} only in B"
    return (
        f"{matched.looked_at:,} of {matched.rows:,} pairs of rows, matched by {by}"
        f"{alone if matched.only_before or matched.only_now else ''}"
    )


def _health(health: Iterable[HealthChange]) -> list[Line]:
    rows = [
        (h.figure, f"{h.before:.1%}", f"{h.now:.1%}", f"{h.difference.expected * 100:+.1f} points",
         _range(h.difference, 100, "+.1f"))
        for h in health
    ]  # fmt: skip
    return [("", "A", "B", "difference", "95 % interval"), *rows]


def _lengths(shift: LengthShift) -> list[Line]:
    a, b = shift.before, shift.now
    if a.mean is None or b.mean is None:
        return []
    named = (("mean", a.mean, b.mean), ("P50", a.p50, b.p50), ("P95", a.p95, b.p95), ("max", a.max, b.max))
    rows: list[Line] = [(name, number(x, "tokens"), number(y, "tokens")) for name, x, y in named]
    if shift.relative is not None:
        rows[0] += (relative(shift.relative.expected), _range(shift.relative, 100, "+.1f"))
    rows = [("", "A", "B", "change", "95 % interval"), *rows]
    return (
        rows if shift.ks_distance is None else [*rows, (f"Kolmogorov-Smirnov distance {shift.ks_distance:.3f} of 1",)]
    )


def _agreement(found: Agreement) -> list[Line]:
    named = (
        ("exactly the same", found.exact),
        ("but for case, white space, punctuation", found.normalised),
        ("words in common (mean F1)", found.token_f1),
    )
    rows: list[Line] = [(name, f"{i.expected:.1%}", _range(i, 100, ".1f")) for name, i in named]
    if found.common_words is not None and found.common_share is not None:
        parted = f"the {found.differing:,} that differ part after {found.common_words:,.0f} words"
        rows.append((f"{parted}, {found.common_share:.0%} of A's answer (medians)",))
    return [("", "share", "95 % interval"), *rows]


def _range(interval: Interval, factor: float, form: str) -> str:
    return f"{interval.low * factor:{form}} … {interval.high * factor:{form}}"


def _example(example: Example) -> list[str]:
    where = f"row {example.row_before}" + (f" and {example.row_now}" if example.row_now != example.row_before else "")
    name = where if example.key == str(example.row_before) else f"{example.key} ({where})"
    answers = (f"    {side}: {_cut(answer, _MOST_OF_AN_ANSWER)}" for side, answer in
               (("A", example.before), ("B", example.now)))  # fmt: skip
    return [f"  {name}: words in common {example.token_f1:.0%}", *answers]


def _cut(value: str, most: int) -> str:
    shown = " ".join(value.split())
    return shown if len(shown) <= most else shown[: most - 1] + "…"
