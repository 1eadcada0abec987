"""`batchjobs compare A B --json`: two outputs side by side. In every pair `before` is A and `now` is B.

Figures that are not known are null, never 0. Intervals are 95 % bootstrap intervals over rows; `expected` is what the
rows themselves have.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from schemas.figures import Distribution, Interval
from schemas.summary import Change

MatchedBy = Literal["id", "row", "request_hash"]


class Side(BaseModel):
    """One of the two outputs."""

    output: str
    job: str
    state: str  # of its last run
    ended: datetime | None = None  # of its last attempt
    rows_ok: int
    rows_error: int
    errors: dict[str, int]
    shards: int
    committed: int


class SettingChange(BaseModel):
    """A setting, version or file that is not the same in both. Null is the default, or not there."""

    key: str
    before: str | None
    now: str | None


class Matched(BaseModel):
    """Which rows of A belong to which of B."""

    by: MatchedBy
    rows: int  # pairs
    only_before: int  # rows of A without a partner, those with a key that is there twice included
    only_now: int
    looked_at: int  # pairs whose answers were read, evenly spaced if not all


class HealthChange(BaseModel):
    """Share of the pairs looked at, in A and in B, and by how much it differs (B minus A, paired by row)."""

    figure: str  # failed, empty, truncated, invalid JSON, repetitive
    before: float
    now: float
    difference: Interval


class LengthShift(BaseModel):
    """Output tokens of the pairs looked at that the engine answered in both."""

    before: Distribution
    now: Distribution
    relative: Interval | None = None  # of the mean: 0.1 is 10 % longer; null if A's mean is 0
    ks_distance: float | None = None  # Kolmogorov-Smirnov: largest distance of the distribution functions, 0..1


class Agreement(BaseModel):
    """How alike the answers are, over the pairs looked at that both answered well."""

    rows: int
    exact: Interval  # share of answers that are the same text
    normalised: Interval  # share that is the same but for case, white space, punctuation and Unicode form
    token_f1: Interval  # mean F1 over words
    differing: int  # answers that are not exactly the same; of these:
    common_words: float | None = None  # words until they part, at the median
    common_share: float | None = None  # the same as a share of A's answer, at the median


class Example(BaseModel):
    """Two answers that differ much."""

    key: str  # the id, row number or request hash that both have
    row_before: int
    row_now: int
    token_f1: float
    before: str
    now: str


class Comparison(BaseModel):
    """Two outputs side by side."""

    a: Side
    b: Side
    settings: list[SettingChange]
    performance: list[Change]
    cost: list[Change]
    matched: Matched
    health: list[HealthChange]
    lengths: LengthShift
    agreement: Agreement | None = None  # null if there is no row that both answered well
    examples: list[Example] = []
    notes: list[str] = []  # sentences that one should know before one judges
