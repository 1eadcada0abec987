"""A few rows of every kind of trouble, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import polars as pl

from batchjobs.reports.parts import Parts
from batchjobs.rows.health import is_repetitive
from schemas.records import GOOD_FINISH_REASONS

EXAMPLES = 3  # of a kind
EXCERPT = 240  # characters


@dataclass
class Row:
    """A row that is shown."""

    row: int
    id: str | None = None
    text: str | None = None  # the beginning of its answer, or why there is none
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    service_s: float | None = None  # from when it was scheduled to its last token


@dataclass
class Examples:
    """A few rows of each kind."""

    errors: dict[str, list[Row]] = field(default_factory=dict)  # by error code
    unhealthy: dict[str, list[Row]] = field(default_factory=dict)  # truncated, empty, repetitive


def find_examples(parts: Parts) -> Examples:
    """The first rows of each kind. Commit records tell which parts have some, so only those are read."""
    codes = sorted({code for commit in parts.commits for code in commit.errors})
    return Examples(
        {code: list(islice(_failed(parts, code), EXAMPLES)) for code in codes},
        {kind: list(islice(_unhealthy(parts, kind), EXAMPLES)) for kind in _UNHEALTHY},
    )


def _failed(parts: Parts, code: str) -> Iterator[Row]:
    for commit in parts.commits:
        if commit.errors.get(code):
            for batch in parts.batches(commit.shard, ("id", "row", "error_code", "error", "prompt_tokens")):
                for values in batch.filter(pl.col("error_code") == code).head(EXAMPLES).to_dicts():
                    yield Row(values["row"], _id(values), excerpt(values["error"]), values["prompt_tokens"])


def _unhealthy(parts: Parts, kind: str) -> Iterator[Row]:
    is_one = _UNHEALTHY[kind]
    for commit in parts.commits:
        if getattr(commit.health, kind):
            for batch in parts.batches(commit.shard, ("row", "finish_reason", "output")):
                answers = batch.filter(pl.col("finish_reason").is_in(list(GOOD_FINISH_REASONS)))
                for row, reason, text in answers.select("row", "finish_reason", "output").iter_rows():
                    if is_one(reason, text or ""):
                        yield Row(row)


# As `rows.health` counts them: what the engine says of the answer's end, and its text.
_UNHEALTHY: dict[str, Callable[[str, str], bool]] = {
    "truncated": lambda reason, text: reason == "length",
    "empty": lambda reason, text: not text.strip(),
    "repetitive": lambda reason, text: reason == "repetition" or is_repetitive(text),
}


def with_texts(parts: Parts, rows: Iterable[Row]) -> None:
    """Add id, tokens and text to rows of which only the number is known."""
    wanted: dict[int, list[Row]] = {}
    for row in rows:
        wanted.setdefault(row.row, []).append(row)
    for shard in parts.of_rows(wanted):
        for batch in parts.batches(shard, ("id", "row", "output", "prompt_tokens", "output_tokens")):
            for values in batch.filter(pl.col("row").is_in(list(wanted))).to_dicts():
                for row in wanted[values["row"]]:
                    row.id, row.text = _id(values), excerpt(values["output"])
                    row.prompt_tokens, row.output_tokens = values["prompt_tokens"], values["output_tokens"]


def _id(values: dict[str, object]) -> str | None:
    value = values.get("id")
    return None if value is None else excerpt(str(value), 80)


def excerpt(text: str | None, most: int = EXCERPT) -> str | None:
    """The text; of a long one the beginning and, since that is where answers go astray, the end."""
    if text is None or len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end].rstrip()} … {text[-end:].lstrip()}"
