"""Intervals by resampling rows."""

from __future__ import annotations

import numpy as np
import pytest

from batchjobs.comparison.bootstrap import Bootstrap


def test_the_same_rows_have_the_same_interval_and_it_holds_what_was_observed() -> None:
    values = np.random.default_rng(1).random((200, 2))
    found = Bootstrap(values).means()
    assert found == Bootstrap(values.copy()).means()
    for column, interval in enumerate(found):
        assert interval.expected == pytest.approx(values[:, column].mean())
        assert interval.low < interval.expected < interval.high


def test_the_interval_is_that_of_the_normal_distribution_where_that_one_holds() -> None:
    """Of a mean over many rows: 1.96 standard errors to both sides."""
    values = np.random.default_rng(2).normal(10, 3, (5000, 1))
    (interval,) = Bootstrap(values).means()
    error = values.std() / np.sqrt(5000)
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


def test_about_95_of_100_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(3)
    samples = (random.random((100, 1)) < 0.3 for _ in range(60))
    intervals = [Bootstrap(sample.astype(np.float64)).means()[0] for sample in samples]
    assert 53 <= sum(interval.low <= 0.3 <= interval.high for interval in intervals) <= 59


def test_four_times_the_rows_halve_the_interval() -> None:
    random = np.random.default_rng(4)
    few, many = (Bootstrap(random.random((rows, 1))).means()[0] for rows in (500, 2000))
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(2, rel=0.15)


def test_columns_of_a_row_stay_together() -> None:
    """A ratio of two columns that are always 2 : 1 has no spread, though each column has."""
    values = np.random.default_rng(5).random((50, 1)) @ [[1.0, 2.0]]
    ratio = Bootstrap(values).interval(lambda means: means[..., 1] / means[..., 0])
    assert (ratio.low, ratio.expected, ratio.high) == pytest.approx((2, 2, 2))


def test_rows_that_are_all_alike_have_no_spread() -> None:
    (interval,) = Bootstrap(np.ones((10, 1))).means()
    assert (interval.low, interval.expected, interval.high) == (1, 1, 1)
