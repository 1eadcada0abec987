"""`batchjobs compare A B`: two outputs side by side."""

from __future__ import annotations

from batchjobs.comparison.answers import read_answers
from batchjobs.comparison.figures import COST, PERFORMANCE, side_by_side
from batchjobs.comparison.matching import match
from batchjobs.comparison.measures import agreement, health, lengths
from batchjobs.comparison.outputs import Output, open_output
from batchjobs.comparison.settings import differing_settings
from batchjobs.rows.sampling import deterministic
from schemas.comparison import Agreement, Comparison, Matched

_EXAMPLES = 5
_FEW_ROWS = 100


def compare(before: str, now: str, most_rows: int) -> Comparison:
    """Output folder `before` (A) against `now` (B), the answers of at most `most_rows` pairs of rows read.

    Raises OutputError if one is no output of ours or of a run that has not ended, or if no row of one is in the other.
    """
    a, b = open_output(before), open_output(now)
    pairs = match(a, b)
    sampled = pairs.sampled(most_rows)
    answers = read_answers(a, b, sampled)
    found, examples = agreement(answers, _EXAMPLES)
    matched = Matched(
        by=pairs.by,
        rows=pairs.places.height,
        only_before=pairs.rows[0] - pairs.places.height,
        only_now=pairs.rows[1] - pairs.places.height,
        looked_at=len(answers),
    )
    return Comparison(
        a=a.side(),
        b=b.side(),
        settings=differing_settings(a, b),
        performance=side_by_side(PERFORMANCE, a.summary, b.summary),
        cost=side_by_side(COST, a.summary, b.summary),
        matched=matched,
        health=health(answers),
        lengths=lengths(answers),
        agreement=found,
        examples=examples,
        notes=_notes(a, b, matched, found),
    )


def _notes(a: Output, b: Output, matched: Matched, found: Agreement | None) -> list[str]:
    """What one should know before one judges."""
    notes = [
        f"{name} is incomplete: only the {len(output.shards):,} of {len(output.plan.shards):,} shards that are "
        "committed are compared."
        for name, output in (("A", a), ("B", b))
        if len(output.shards) < len(output.plan.shards)
    ]
    if matched.looked_at < matched.rows:
        read = f"{matched.looked_at:,} of {matched.rows:,} pairs"
        notes.append(f"The answers of {read} were read, evenly spaced; `--sample N` reads more.")
    if matched.looked_at < _FEW_ROWS:
        notes.append(
            f"{matched.looked_at:,} pairs are few: the intervals are rough, and a fault that one answer in a hundred "
            "has may not show at all."
        )
    return [*notes, *_notes_on_agreement(a, b, found)]


def _notes_on_agreement(a: Output, b: Output, found: Agreement | None) -> list[str]:
    if found is None:
        return ["No row was answered well by both, so there is nothing to agree on."]
    if found.differing == 0 and found.rows > 3:
        # Resampling equal answers shows no spread, so here it is the rule of three (Hanley and Lippman-Hand 1983).
        return [
            f"All {found.rows:,} are equal: with 95 % confidence, fewer than {3 / found.rows:.2%} of all rows differ."
        ]
    if not all(deterministic(output.job.sampling.model_dump()) for output in (a, b)):
        return ["Answers were drawn at random (temperature above 0, no seed), so they differ by nature."]
    return [
        "Exact agreement below 100 % alone is no verdict: in bfloat16, greedy answers of one and the same engine vary "
        "with which rows are in a batch together. Run A twice to see how far it agrees with itself."
    ]
