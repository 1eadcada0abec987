"""Percentiles from bins."""

from __future__ import annotations

import random

import pytest

from batchjobs.accounts.histogram import Histogram, Lengths
from schemas.figures import Distribution


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


def test_of_lengths_count_mean_and_longest_are_exact_and_percentiles_within_one_percent() -> None:
    rng = random.Random(2)
    values = sorted(round(rng.lognormvariate(5, 1)) for _ in range(10_000))
    one, two = Lengths(), Lengths()
    for n, value in enumerate(values):
        (one if n % 3 else two).add(value)
    one.merge(two.plain())
    found = one.distribution()
    assert (found.count, found.mean, found.max) == (10_000, sum(values) / 10_000, values[-1])
    for percentile, rank in ((found.p50, 4999), (found.p95, 9499), (found.p99, 9899)):
        assert percentile == pytest.approx(values[rank], rel=0.011)
    borders = [up_to for up_to, _ in found.histogram]
    assert borders == sorted(set(borders))
    below = 0
    for up_to, count in found.histogram:
        below += count
        assert below == sum(value <= up_to for value in values)


@pytest.mark.parametrize("tokens", range(50))
def test_short_lengths_are_exact(tokens: int) -> None:
    lengths = Lengths()
    lengths.add(tokens)
    lengths.add(1000)
    found = lengths.distribution()
    assert (found.p50, found.max) == (tokens, 1000)


def test_no_lengths_are_unknown_not_zero() -> None:
    assert Lengths().distribution() == Distribution()
