"""What may be wrong with an answer."""

from __future__ import annotations

import random

import pytest

from batchjobs.rows.health import health_of, is_repetitive
from batchjobs.rows.results import Result
from schemas.summary import Health

PROSE = (
    "The river had risen in the night, and by morning the lower fields were under water as far as the mill. Nobody in "
    "the village could remember a spring like it; the old ferryman, who had been asked more than once, only shook his "
    "head and went on mending his nets. Towards noon a cart came down the hill with two barrels, a goat and a child. "
)


def answer(text: str | None, reason: str = "stop", code: str | None = None) -> Result:
    return Result(0, text, finish_reason=reason, error_code=code)


def test_each_answer_is_counted_under_all_that_is_wrong_with_it() -> None:
    loop = "and so on, " * 40
    results = [
        answer("fine"),
        answer(" \n"),
        answer(None),
        answer(loop),
        answer(loop, "length", "invalid_output"),
        answer("{", "stop", "invalid_output"),
        answer("short", "repetition"),
    ]
    assert health_of(results) == Health(answers=7, empty=2, truncated=1, invalid=2, repetitive=3)


def test_rows_without_an_answer_are_not_looked_at() -> None:
    results = [None, Result(0, error_code="null_prompt"), answer("", "abort"), answer("", "error")]
    assert health_of(results) == Health()


def test_prose_is_not_repetitive_however_long_it_is() -> None:
    rng = random.Random(3)
    words = PROSE.split()
    long = " ".join(rng.choice(words) for _ in range(20_000))
    assert not is_repetitive(PROSE)
    assert not is_repetitive(long)


@pytest.mark.parametrize(
    "text",
    ["ha" * 60, PROSE + "I do not know. " * 40, "é" * 100, "的" * 60, "half a pair \ud83d" * 20],
    ids=["letters", "at the end", "two bytes", "three bytes", "no UTF-8"],
)
def test_an_answer_that_ends_in_a_loop_is_repetitive(text: str) -> None:
    assert is_repetitive(text)


def test_a_short_answer_says_too_little() -> None:
    assert not is_repetitive("yes yes yes yes yes yes yes")
