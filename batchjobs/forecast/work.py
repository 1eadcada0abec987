"""What is left to be generated: tokens of prompts and answers, from a sample and from what earlier runs have learnt."""

from __future__ import annotations

from dataclasses import dataclass

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.forecast.totals import by_rows, prompt_tokens
from batchjobs.settings.sample import Sample
from schemas.figures import Interval
from schemas.history import HistoryRecord


@dataclass(frozen=True)
class Work:
    """Tokens of the rows that are left."""

    rows: int  # before the filter
    requests: float  # of these, that can be generated
    prompt_tokens: Interval
    output_tokens: Interval  # from 0 to all of max_tokens if nothing is known of answers
    knows_answers: bool
    method: str  # a sentence: how they were found
    copies: float = 0.0  # share of the tokens that identical requests need not generate again, as in the latest run
    shared_prefix: float = 0.0  # share of the prompt tokens that a prefix cache can spare at best


def work_of(
    sample: Sample, lengths: OutputLengths, rows: int, prompt_bytes: float | None, record: HistoryRecord | None = None
) -> Work | None:
    """The tokens of `rows` rows like those of the sample; None if it has none.

    `prompt_bytes` are those of the prompt's columns in just these rows, as footers count them; None if not known.
    """
    if not sample.read:
        return None
    places = list(sample.places.values())
    prompts, method = prompt_tokens(places, rows, prompt_bytes)
    if prompts is None:
        return None
    counts = [float(place.rows) for place in places]
    answers = [sum(lengths.expected(*request) for request in place.requests) for place in places]
    outputs, knows = by_rows(answers, counts, rows), bool(lengths.plain())
    return Work(
        rows=rows,
        requests=rows * sum(len(place.requests) for place in places) / sample.read,
        prompt_tokens=prompts,
        output_tokens=outputs if knows else Interval(low=0, expected=outputs.expected, high=outputs.high),
        knows_answers=knows,
        method=method,
        copies=_copies(record),
    )


def _copies(record: HistoryRecord | None) -> float:
    if record is None:
        return 0.0
    tokens = record.summary.tokens
    total = tokens.prompt + tokens.output + tokens.saved_by_deduplication
    return tokens.saved_by_deduplication / total if total else 0.0
