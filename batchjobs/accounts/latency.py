"""Percentiles of millions of latencies in little memory, and mergeable over replicas."""

from __future__ import annotations

import math
from collections.abc import Mapping

from schemas.summary import Percentiles

_LOG_RATIO = math.log(1.02)  # neighbouring bins differ by 2 %, so a percentile is exact to 1 %
_SMALLEST = 1e-6  # seconds


class LatencyHistogram:
    """Logarithmic bins, as in DDSketch (Masson, Rim, Lee: "DDSketch", VLDB 2019)."""

    def __init__(self, bins: Mapping[str, int] | None = None) -> None:
        self._bins = {int(index): count for index, count in (bins or {}).items()}

    def add(self, seconds: float | None) -> None:
        """Count one latency; unknown ones (None) are left out."""
        if seconds is not None:
            index = math.floor(math.log(max(seconds, _SMALLEST)) / _LOG_RATIO)
            self._bins[index] = self._bins.get(index, 0) + 1

    def merge(self, bins: Mapping[str, int]) -> None:
        """Add another histogram's bins."""
        for index, count in bins.items():
            self._bins[int(index)] = self._bins.get(int(index), 0) + count

    def bins(self) -> dict[str, int]:
        """The counts, for a message."""
        return {str(index): count for index, count in self._bins.items()}

    def percentiles(self) -> Percentiles:
        """P50, P95 and P99 in seconds (nearest rank); None if nothing was counted."""
        if not self._bins:
            return Percentiles()
        return Percentiles(p50=self._rank(0.50), p95=self._rank(0.95), p99=self._rank(0.99))

    def _rank(self, share: float) -> float:
        left = math.ceil(share * sum(self._bins.values()))
        for index in sorted(self._bins):
            left -= self._bins[index]
            if left <= 0:
                return math.exp((index + 0.5) * _LOG_RATIO)
        raise AssertionError("unreachable: the counts add up")
