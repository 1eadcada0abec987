"""Intervals by resampling rows.

Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979); the interval between
percentiles of the resampled values is in Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from schemas.figures import Interval

Floats = NDArray[np.float64]

RESAMPLES = 2000
_LEVEL = (2.5, 97.5)  # percentiles: 95 % of the resampled values lie between them
_SEED = 20_240_601  # any fixed number: the same rows have the same interval


class Bootstrap:
    """Values of rows, (rows, columns), and the means of each column over rows drawn with replacement.

    All columns of a resample see the same rows, so what is paired stays so.
    """

    def __init__(self, values: Floats) -> None:
        self._observed = values.mean(axis=0)
        self._resampled = _resampled_means(values)

    def means(self) -> list[Interval]:
        """The mean of each column."""
        return [self.interval(partial(_column, number=number)) for number in range(len(self._observed))]

    def interval(self, of_means: Callable[[Floats], Floats]) -> Interval:
        """A function of the column means, such as a ratio of two; it gets (…, columns) and gives (…)."""
        low, high = np.percentile(of_means(self._resampled), _LEVEL)
        return Interval(low=float(low), expected=float(of_means(self._observed)), high=float(high))


def _column(means: Floats, number: int) -> Floats:
    return means[..., number]


def _resampled_means(values: Floats) -> Floats:
    """(rows, columns) -> (resamples, columns). A resample is how often each row was drawn: no copy of the values."""
    rows = len(values)
    random = np.random.default_rng(_SEED)
    drawn = (np.bincount(random.integers(0, rows, rows), minlength=rows) for _ in range(RESAMPLES))
    return np.stack([counts @ values for counts in drawn]) / rows
