"""Seconds, moments and dollars for people. Imports little: `status` uses it."""

from __future__ import annotations

from datetime import datetime, timedelta


def duration(seconds: float) -> str:
    """Seconds for people: `850 ms`, `12.3 s`, `4 min 05 s`, `3 h 07 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02d} min" if hours else f"{minutes} min {rest:02d} s"


def clock(moment: datetime, seen_from: datetime) -> str:
    """A moment in local time: `06:30`, with its date if it is a day away or more, with seconds if it is near."""
    away = abs(moment - seen_from)
    day = "%Y-%m-%d " if away >= timedelta(days=1) else ""
    return moment.astimezone().strftime(f"{day}%H:%M{':%S' if away < timedelta(minutes=10) else ''}")


def dollars(usd: float) -> str:
    """US dollars: cents from ten dollars on, more places for less."""
    return f"${usd:,.2f}" if usd >= 10 else f"${usd:,.4f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
