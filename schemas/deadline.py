"""How moments and durations are written: `run.deadline`, `run.device_wait`, `input.ready.wait`."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

ALLOWED = (
    "a time of day (06:30, the next one), a date with time (2026-12-01T06:30, with an offset such as +01:00 if it is "
    "not local) or a duration (7h30m, 45m, 90s)"
)
ALLOWED_DURATION = "a duration (7h30m, 45m, 90s)"
_DURATION = re.compile(r"(?=\d)(?:(\d{1,5})h)? ?(?:(\d{1,6})m)? ?(?:(\d{1,8})s)?")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_DATE_WITH_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*")


def parse_deadline(text: str) -> time | datetime | timedelta:
    """The deadline in its own type: a naive time, a date with time (naive means local), or a duration above zero.

    Raises ValueError that says what was found and what is allowed.
    """
    problem = ValueError(f"found {text!r}; allowed: {ALLOWED}")
    try:
        if duration := _duration(text):
            return duration
        if found := _TIME.fullmatch(text):
            hours, minutes, seconds = (int(number or 0) for number in found.groups())
            return time(hours, minutes, seconds)
        elif _DATE_WITH_TIME.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        raise problem from None
    raise problem


def parse_duration(text: str, may_be_zero: bool = False) -> timedelta:
    """A duration above zero, such as `2h`; raises ValueError that says what was found and what is allowed."""
    duration = _duration(text)
    if duration or (may_be_zero and duration is not None):
        return duration
    raise ValueError(f"found {text!r}; allowed: {ALLOWED_DURATION}")


def _duration(text: str) -> timedelta | None:
    """The duration that the text is; None or zero if it is none above zero."""
    if found := _DURATION.fullmatch(text):
        hours, minutes, seconds = (int(number or 0) for number in found.groups())
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return None
