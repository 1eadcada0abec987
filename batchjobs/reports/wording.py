"""Figures as a report writes them. What is not known is called so, never 0."""

from __future__ import annotations

from datetime import datetime

from batchjobs.accounts.units import duration

UNKNOWN = "not known"


def count(number: float | None) -> str:
    """A number of things: `1,234`."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def share(part: float | None) -> str:
    """A part of one: `12.3%`; one that is small keeps a digit that is not 0."""
    if part is None:
        return UNKNOWN
    if part == 0:
        return "0%"
    if abs(part) >= 0.001:
        return f"{part:.1%}"
    return f"{100 * part:.1g}%" if abs(part) >= 0.00001 else "under 0.001%"


def ratio(part: int, whole: int) -> str:
    """`part` of `whole` as a share; not known if there is no whole."""
    return share(part / whole if whole else None)


def money(usd: float | None) -> str:
    """US dollars: `$1,234`, `$12.34`, `$0.0536`."""
    if usd is None:
        return UNKNOWN
    if usd >= 1000:
        return f"${usd:,.0f}"
    if usd >= 1 or usd == 0:
        return f"${usd:,.2f}"
    return f"${usd:#.3g}" if usd >= 0.0001 else f"${usd:.1e}"


def seconds(length: float | None) -> str:
    """A length of time; one of nothing was not measured."""
    return UNKNOWN if not length else duration(length)


def rate(per_second: float | None) -> str:
    """Per second."""
    return UNKNOWN if per_second is None else f"{per_second:,.1f}" if per_second < 100 else f"{per_second:,.0f}"


def size(count_of_bytes: float | None) -> str:
    """Bytes in GiB or MiB."""
    if count_of_bytes is None:
        return UNKNOWN
    gib = count_of_bytes / 2**30
    return f"{gib:,.1f} GiB" if gib >= 1 else f"{count_of_bytes / 2**20:,.0f} MiB"


def instant(when: datetime | None) -> str:
    """A moment, in UTC or in the zone that it has."""
    return UNKNOWN if when is None else when.strftime("%Y-%m-%d %H:%M %Z").strip()


def number(value: float | None) -> str:
    """A figure of which only the name tells the unit, with as many digits as are worth reading."""
    if value is None:
        return UNKNOWN
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def change(before: float | None, now: float | None) -> str:
    """How much a figure has changed, as a share of what it was: `+12.3%`."""
    if before is None or now is None:
        return ""
    if before == now:
        return "same"
    return f"{(now - before) / abs(before):+.1%}" if before else "new"
