"""How long prompts and answers are, as figures and pictures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from batchjobs.reports.evidence import Evidence
from batchjobs.reports.views import Table
from batchjobs.reports.wording import count
from schemas.figures import Distribution
from schemas.summary import Summary


@dataclass(frozen=True)
class Lengths:
    """Tokens of the job's rows, over all its runs; of this run only where no part could be read."""

    prompt: Distribution
    output: Distribution
    source: str  # a sentence: what was counted

    def table(self) -> Table:
        """Both, side by side."""
        named = (("Prompt", self.prompt), ("Answer", self.output))
        rows = [[name, *(count(v) for v in (d.count, d.mean, d.p50, d.p95, d.p99, d.max))] for name, d in named]
        return Table(["Tokens of a", "rows", "mean", "P50", "P95", "P99", "longest"], frozenset(range(1, 7)), rows)


def lengths_of(summary: Summary, evidence: Evidence) -> Lengths:
    """From the parts, which cover the whole job, else from the summary."""
    numbers = evidence.numbers
    if not numbers.rows:
        known = summary.lengths
        return Lengths(known.prompt_tokens, known.output_tokens, "The requests that this run generated.")
    which = "Every row" if numbers.rows == evidence.rows else f"A sample of {count(numbers.rows)} rows, evenly spread,"
    source = f"{which} of the {evidence.parts:,} parts, over all runs."
    return Lengths(distribution(numbers.prompt_tokens), distribution(numbers.output_tokens), source)


def distribution(counts: Counter[int]) -> Distribution:
    """Mean, percentiles (nearest rank) and maximum of counted lengths, without a histogram."""
    total = counts.total()
    if not total:
        return Distribution()
    ordered = sorted(counts.items())
    return Distribution(
        count=total,
        mean=sum(tokens * rows for tokens, rows in ordered) / total,
        p50=_rank(ordered, 0.50 * total),
        p95=_rank(ordered, 0.95 * total),
        p99=_rank(ordered, 0.99 * total),
        max=ordered[-1][0],
    )


def _rank(ordered: list[tuple[int, int]], rank: float) -> float:
    reached = 0
    for tokens, rows in ordered:
        reached += rows
        if reached >= rank:
            return tokens
    raise AssertionError("unreachable: the counts add up")
