"""Tokens of a whole dataset from those of a sample, with a 95 % interval.

The sample is one of clusters: rows of one place are alike, so what places differ by counts, and not what rows differ by
(W. G. Cochran, Sampling Techniques, 3rd ed.: chapter 6 for ratios, 7 for regression, 9A for clusters).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

from batchjobs.settings.sample import PlaceSums
from schemas.figures import Interval

_CONFIDENCE = 0.95
# Footers and Arrow count the same rows a little differently: 0.7 % apart for the docstrings, of whose repeated values a
# dictionary holds one each. Far more than chance makes of it means another encoding.
_COUNTED_DIFFERENTLY = 0.01
_FAR = 3.0  # half intervals
_FEWEST = 8  # places of which an interval is worth its name


def student(freedom: int) -> float:
    """The quantile of Student's t for a 95 % interval, within 1 % from 4 degrees of freedom on.

    The expansion of Abramowitz and Stegun, 26.7.5.
    """
    z = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def prompt_tokens(
    places: Sequence[PlaceSums], rows: int, footer_bytes: float | None = None
) -> tuple[Interval | None, str]:
    """Prompt tokens of `rows` rows that will be generated, and how they were found; None if no row was looked at.

    By the bytes of the prompt's columns (`footer_bytes`, of all these rows) if they are known and the footers count
    them as the sample does, which they do not where a dictionary holds repeated values once. Else by rows alone.
    """
    read = sum(place.rows for place in places)
    tokens = [float(place.prompt_tokens) for place in places]
    if read >= rows:
        return _exactly(sum(tokens)), f"Counted in all {rows:,} rows."
    where = f"of {read:,} sampled rows in {len(places):,} places"
    if len(places) < _FEWEST:
        expected = _exactly(sum(tokens) / read * rows) if read else None
        return expected, f"Tokens per row {where} x {rows:,} rows; too few places for an interval."
    counts = [float(place.rows) for place in places]
    plain = by_rows(tokens, counts, rows)
    if footer_bytes is None:
        return plain, f"Tokens per row {where} x {rows:,} rows."
    sizes = [float(place.prompt_bytes) for place in places]
    bytes_found = by_rows(sizes, counts, rows)
    apart = abs(footer_bytes - bytes_found.expected) - _COUNTED_DIFFERENTLY * bytes_found.expected
    if apart > _FAR * (bytes_found.high - bytes_found.expected):
        why = (
            f"the footers say {footer_bytes / rows:,.1f} bytes a row and the sample {bytes_found.expected / rows:,.1f} "
            "(values stored once for many rows, or encoded otherwise)"
        )
        return plain, f"Tokens per row {where} x {rows:,} rows; not by bytes, as {why}."
    found, how = _by_bytes(tokens, counts, sizes, rows, footer_bytes)
    if apart > bytes_found.high - bytes_found.expected:  # chance, or some encoding: so both must be possible
        found = _with(found, plain.expected)
    return found, f"{how[0]} {where} x {how[1]}."


def _by_bytes(
    tokens: list[float], counts: list[float], sizes: list[float], rows: int, footer_bytes: float
) -> tuple[Interval, tuple[str, str]]:
    """The regression estimator: so much per byte, and so much per row for what the template adds."""
    per_row, per_byte = _fit(tokens, counts, sizes)
    residuals = [t - per_row * n - per_byte * size for t, n, size in zip(tokens, counts, sizes, strict=True)]
    error = _error(residuals, 2, sum(counts), rows) + _COUNTED_DIFFERENTLY * abs(per_byte) * footer_bytes
    columns = f"{footer_bytes:,.0f} bytes of the prompt's columns and {rows:,} rows"
    how = f"{per_byte:.4f} tokens per byte and {per_row:.1f} per row", columns
    return _around(per_row * rows + per_byte * footer_bytes, error), how


def by_rows(values: Sequence[float], counts: Sequence[float], rows: int) -> Interval:
    """The total over `rows` rows of what has `values` in places of `counts` rows: the ratio estimator.

    Without an interval if all rows were read, or too few places. There must be a row.
    """
    read = sum(counts)
    if len(values) < _FEWEST or read >= rows:
        return _exactly(sum(values) / read * rows)
    ratio = sum(values) / read
    residuals = [value - ratio * count for value, count in zip(values, counts, strict=True)]
    return _around(ratio * rows, _error(residuals, 1, read, rows))


def _exactly(value: float) -> Interval:
    return Interval(low=value, expected=value, high=value)


def _with(interval: Interval, value: float) -> Interval:
    return interval.model_copy(update={"low": min(interval.low, value), "high": max(interval.high, value)})


def _around(expected: float, error: float) -> Interval:
    return Interval(low=max(0.0, expected - error), expected=expected, high=expected + error)


def _error(residuals: Sequence[float], fitted: int, read: float, rows: int) -> float:
    """Half of the interval of a total: rows / read x sqrt(places x (1 - read / rows)) x spread of places x t."""
    places, freedom = len(residuals), len(residuals) - fitted
    spread = sqrt(sum(residual**2 for residual in residuals) / freedom)
    return rows / read * sqrt(places * (1 - read / rows)) * spread * student(freedom)


def _fit(tokens: Sequence[float], counts: Sequence[float], sizes: Sequence[float]) -> tuple[float, float]:
    """Tokens per row (the template's own) and per byte, by least squares over the places.

    Then the rest of the sample is spread over the rows, so that the sample's own total is met.
    """
    nn, ss = sum(n * n for n in counts), sum(s * s for s in sizes)
    ns = sum(n * s for n, s in zip(counts, sizes, strict=True))
    nt = sum(n * t for n, t in zip(counts, tokens, strict=True))
    st = sum(s * t for s, t in zip(sizes, tokens, strict=True))
    determinant = nn * ss - ns * ns
    alike = determinant <= 1e-9 * nn * ss  # each place has the same bytes per row, so they cannot be told apart
    per_byte = 0.0 if alike else (nn * st - ns * nt) / determinant
    return (sum(tokens) - per_byte * sum(sizes)) / sum(counts), per_byte
