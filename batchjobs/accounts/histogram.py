"""Percentiles of millions of latencies and lengths in little memory, and mergeable over replicas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from schemas.figures import Distribution
from schemas.summary import Percentiles

_LOG_RATIO = math.log(1.02)  # neighbouring bins differ by 2 %, so a percentile is exact to 1 %
_SMALLEST = 1e-6
_SHOWN_TOGETHER = 4  # bins; for people, 8 % is fine enough


class Histogram:
    """Logarithmic bins, as in DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019)."""

    def __init__(self, bins: Mapping[str, int] | None = None) -> None:
        self._bins = {int(index): count for index, count in (bins or {}).items()}

    def add(self, value: float | None) -> None:
        """Count one value; unknown ones (None) are left out."""
        if value is not None:
            index = math.floor(math.log(max(value, _SMALLEST)) / _LOG_RATIO)
            self._bins[index] = self._bins.get(index, 0) + 1

    def merge(self, bins: Mapping[str, int]) -> None:
        """Add another histogram's bins."""
        for index, count in bins.items():
            self._bins[int(index)] = self._bins.get(int(index), 0) + count

    def bins(self) -> dict[str, int]:
        """The counts, for a message."""
        return {str(index): count for index, count in self._bins.items()}

    def percentiles(self) -> Percentiles:
        """P50, P95 and P99 of latencies in seconds (nearest rank); None if nothing was counted."""
        if not self._bins:
            return Percentiles()
        return Percentiles(p50=self.rank(0.50), p95=self.rank(0.95), p99=self.rank(0.99))

    def rank(self, share: float) -> float:
        """The value (to 1 %) that this share of all values does not exceed; something must have been counted."""
        left = math.ceil(share * sum(self._bins.values()))
        for index in sorted(self._bins):
            left -= self._bins[index]
            if left <= 0:
                return math.exp((index + 0.5) * _LOG_RATIO)
        raise AssertionError("unreachable: the counts add up")


class Lengths:
    """How long texts are, in tokens. Up to 49 tokens every length has a bin of its own, so percentiles are exact."""

    def __init__(self) -> None:
        self._histogram, self._total, self._longest = Histogram(), 0, 0

    def add(self, tokens: int) -> None:
        """Count one text."""
        self._histogram.add(tokens)
        self._total += tokens
        self._longest = max(self._longest, tokens)

    def plain(self) -> dict[str, Any]:
        """All of it, for a message."""
        return {"bins": self._histogram.bins(), "total": self._total, "longest": self._longest}

    def merge(self, plain: Mapping[str, Any]) -> None:
        """Add what another one counted."""
        self._histogram.merge(plain["bins"])
        self._total += plain["total"]
        self._longest = max(self._longest, plain["longest"])

    def distribution(self) -> Distribution:
        """Exact count, mean and longest; percentiles to 1 %, never above the longest; bins about 8 % wide."""
        bins = {int(index): number for index, number in self._histogram.bins().items()}
        count = sum(bins.values())
        if not count:
            return Distribution()
        shown: dict[int, int] = {}
        for index, number in sorted(bins.items()):
            up_to = math.ceil(math.exp((index // _SHOWN_TOGETHER + 1) * _SHOWN_TOGETHER * _LOG_RATIO)) - 1
            shown[up_to] = shown.get(up_to, 0) + number
        p50, p95, p99 = (min(round(self._histogram.rank(share)), self._longest) for share in (0.50, 0.95, 0.99))
        return Distribution(
            count=count, mean=self._total / count, p50=p50, p95=p95, p99=p99, max=self._longest,
            histogram=list(shown.items()),
        )  # fmt: skip
