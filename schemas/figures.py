"""Small shapes that plan, summary and comparison have in common."""

from __future__ import annotations

from pydantic import BaseModel


class Interval(BaseModel):
    """A number that is not known exactly."""

    low: float
    expected: float
    high: float


class Distribution(BaseModel):
    """How long something is, in tokens. Null if nothing was counted."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: int | None = None
    histogram: list[tuple[int, int]] = []  # (at most so many tokens, how many), ascending, empty bins left out


class Estimate(BaseModel):
    """Time and money that the rows of a job which are left will take."""

    seconds: Interval | None = None  # wall clock of the run, planning and the start of its engines included
    usd: Interval | None = None  # null without `cost.usd_per_hour`, or if the time is not known
    is_bound: bool = False  # `low` is what the hardware allows at best; nothing was measured
    basis: str  # a sentence: what was measured and when, or which bound this is, or what is missing
