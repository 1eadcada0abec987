"""What pairs of answers say about two runs: health, lengths, agreement, and the pairs that differ most."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchjobs.comparison.answers import Answer
from batchjobs.comparison.bootstrap import Bootstrap
from batchjobs.comparison.texts import common_beginning, f1, normalised_words, words
from schemas.comparison import Agreement, Example, HealthChange, LengthShift
from schemas.figures import Distribution

Pair = tuple[Answer, Answer]

_MOST_SHOWN = 2000  # characters of an example


def health(pairs: Sequence[Pair]) -> list[HealthChange]:
    """Share of answers with each fault in A and in B, over the same rows."""
    faults = [(before.faults(), now.faults()) for before, now in pairs]
    names = list(faults[0][0])
    flags = np.array([[[before[name], now[name]] for name in names] for before, now in faults], dtype=np.float64)
    shares = flags.mean(axis=0)
    differences = Bootstrap(flags[..., 1] - flags[..., 0]).means()
    return [
        HealthChange(figure=name, before=float(before), now=float(now), difference=difference)
        for name, (before, now), difference in zip(names, shares, differences, strict=True)
    ]


def lengths(pairs: Sequence[Pair]) -> LengthShift:
    """Output tokens of the rows that the engine answered in both."""
    both = ((before.output_tokens, now.output_tokens) for before, now in pairs)
    counts = np.array([pair for pair in both if None not in pair], dtype=np.float64).reshape(-1, 2)
    before, now = counts[:, 0], counts[:, 1]
    shift = LengthShift(before=_distribution(before), now=_distribution(now))
    if not len(counts):
        return shift
    if before.min() > 0:  # else a resample may have nothing to divide by
        shift.relative = Bootstrap(counts).interval(lambda means: means[..., 1] / means[..., 0] - 1)
    shift.ks_distance = ks_distance(before, now)
    return shift


def ks_distance(before: NDArray[np.float64], now: NDArray[np.float64]) -> float:
    """Largest distance between the two empirical distribution functions: the two-sample statistic of Smirnov (1948)."""
    at = np.union1d(before, now)
    below = [np.searchsorted(np.sort(side), at, side="right") / len(side) for side in (before, now)]
    return float(np.abs(below[0] - below[1]).max())


def _distribution(tokens: NDArray[np.float64]) -> Distribution:
    if not len(tokens):
        return Distribution()
    p50, p95, p99 = (float(value) for value in np.percentile(tokens, (50, 95, 99)))
    return Distribution(count=len(tokens), mean=float(tokens.mean()), p50=p50, p95=p95, p99=p99, max=int(tokens.max()))


def agreement(pairs: Sequence[Pair], most_examples: int) -> tuple[Agreement | None, list[Example]]:
    """How alike the answers are where both are good, and those that are least so; None if there is no such pair."""
    good = [(before, now) for before, now in pairs if before.is_good and now.is_good]
    if not good:
        return None, []
    values = np.array(
        [_alike(before.result.output or "", now.result.output or "") for before, now in good], dtype=np.float64
    )
    exact, normalised, token_f1 = Bootstrap(values[:, :3]).means()
    parted = values[values[:, 0] == 0, 3:]
    found = Agreement(rows=len(good), exact=exact, normalised=normalised, token_f1=token_f1, differing=len(parted))
    if len(parted):
        found.common_words, found.common_share = (float(value) for value in np.median(parted, axis=0))
    least = heapq.nsmallest(most_examples, np.flatnonzero(values[:, 0] == 0), key=lambda n: values[n, 2])
    return found, [_example(good[n], float(values[n, 2])) for n in least]


def _alike(before: str, now: str) -> tuple[float, float, float, float, float]:
    """Whether they are equal, equal when normalised, F1 of their words, and how much of them begins alike."""
    if before == now:
        return 1.0, 1.0, 1.0, 0.0, 0.0
    words_before, words_now = normalised_words(before), normalised_words(now)
    raw = words(before)
    common = common_beginning(raw, words(now))
    return 0.0, words_before == words_now, f1(words_before, words_now), common, common / len(raw) if raw else 0.0


def _example(pair: Pair, token_f1: float) -> Example:
    (key, before), (_, now) = pair
    return Example(
        key=key,
        row_before=before.row,
        row_now=now.row,
        token_f1=token_f1,
        before=(before.output or "")[:_MOST_SHOWN],
        now=(now.output or "")[:_MOST_SHOWN],
    )
