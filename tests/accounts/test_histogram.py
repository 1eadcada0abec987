"""Percentiles from bins."""

from __future__ import annotations

import random

import pytest

from batchjobs.accounts.histogram import Histogram


def test_percentiles_are_within_one_percent_of_the_exact_ones() -> None:
    rng = random.Random(1)
    values = sorted(rng.lognormvariate(0, 2) for _ in range(10_000))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    found = histogram.percentiles()
    assert found.p50 == pytest.approx(values[4999], rel=0.011)
    assert found.p95 == pytest.approx(values[9499], rel=0.011)
    assert found.p99 == pytest.approx(values[9899], rel=0.011)


def test_merged_histograms_equal_one_over_everything() -> None:
    one, two, both = Histogram(), Histogram(), Histogram()
    for n in range(1, 100):
        (one if n % 2 else two).add(n / 10)
        both.add(n / 10)
    one.merge(two.bins())
    assert one.percentiles() == both.percentiles()


def test_unknown_latencies_are_left_out_and_none_is_not_zero() -> None:
    histogram = Histogram()
    histogram.add(None)
    assert histogram.percentiles().p50 is None
