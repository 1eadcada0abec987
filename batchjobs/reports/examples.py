"""A few rows of every kind of trouble, and what they say."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import polars as pl

from batchjobs.reports.parts import Parts
from schemas.records import Status

EXAMPLES = 3  # of a kind
EXCERPT = 240  # characters
REPETITIVE = 2.4  # bytes of a text over bytes of its zlib form: where Whisper calls a transcript repetitive
_SEARCHED_ROWS = 20_000  # whose text is looked at for empty and repetitive answers
_SEARCHED_CHARACTERS = 64 * 2**20


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
    searched: int = 0  # answers whose text was looked at, for empty and repetitive ones


def find_examples(parts: Parts, spread: list[int]) -> Examples:
    """Commit records tell which parts have errors and cut answers; other trouble is searched in the shards `spread`."""
    codes = sorted({code for commit in parts.commits for code in commit.errors})
    found = Examples({code: list(islice(_failed(parts, code), EXAMPLES)) for code in codes})
    found.unhealthy["truncated"] = list(islice(_truncated(parts), EXAMPLES))
    _search(parts, spread, found)
    return found


def _failed(parts: Parts, code: str) -> Iterator[Row]:
    for commit in parts.commits:
        if commit.errors.get(code):
            for batch in parts.batches(commit.shard, ("id", "row", "error_code", "error", "prompt_tokens")):
                for values in batch.filter(pl.col("error_code") == code).head(EXAMPLES).to_dicts():
                    yield Row(values["row"], _id(values), excerpt(values["error"]), values["prompt_tokens"])


def _truncated(parts: Parts) -> Iterator[Row]:
    for commit in parts.commits:
        if commit.warnings:
            for batch in parts.batches(commit.shard, ("row", "warning")):
                yield from map(Row, batch.filter(pl.col("warning").is_not_null())["row"].head(EXAMPLES).to_list())


def _search(parts: Parts, shards: list[int], found: Examples) -> None:
    """Answers that are empty or repeat themselves, in a bounded number of texts."""
    empty = found.unhealthy["empty"] = []
    repetitive = found.unhealthy["repetitive"] = []
    characters = 0
    for row, text in _answers(parts, shards):
        found.searched += 1
        characters += len(text)
        if not text.strip():
            empty.append(Row(row))
        elif len(repetitive) < EXAMPLES and is_repetitive(text):
            repetitive.append(Row(row))
        if found.searched == _SEARCHED_ROWS or characters > _SEARCHED_CHARACTERS:
            break
    del empty[EXAMPLES:]


def _answers(parts: Parts, shards: list[int]) -> Iterator[tuple[int, str]]:
    for shard in shards:
        for batch in parts.batches(shard, ("row", "status", "output")):
            good = batch.filter((pl.col("status") == Status.OK) & pl.col("output").is_not_null())
            yield from zip(good["row"].to_list(), good["output"].to_list(), strict=True)


def is_repetitive(text: str) -> bool:
    """Whether zlib makes the text more than 2.4 times smaller."""
    data = text.encode("utf-8", "replace")
    return len(data) > REPETITIVE * len(zlib.compress(data))


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
    """The first characters of a text."""
    return text if text is None or len(text) <= most else text[:most].rstrip() + " …"
