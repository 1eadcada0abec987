"""How long answers are expected to be."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from batchjobs.accounts.lengths import OutputLengths

_ROWS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**5)))


def learnt(rows: list[tuple[int, int]]) -> OutputLengths:
    lengths = OutputLengths()
    for prompt_tokens, output_tokens in rows:
        lengths.add(prompt_tokens, output_tokens)
    return lengths


def test_while_nothing_is_known_an_answer_is_as_long_as_it_may_be() -> None:
    assert OutputLengths().expected(100, 64) == 64


def test_prompts_of_like_length_are_expected_to_have_answers_of_like_length() -> None:
    lengths = learnt([(100, 10), (120, 20), (1000, 300)])
    assert lengths.expected(127, 500) == 15
    assert lengths.expected(600, 500) == 300


def test_a_length_of_prompt_not_seen_yet_has_the_mean_of_all() -> None:
    assert learnt([(100, 10), (1000, 30)]).expected(5, 500) == 20


def test_an_answer_is_never_expected_longer_than_its_row_allows() -> None:
    lengths = learnt([(100, 400)])
    assert lengths.expected(100, 64) == 64
    assert lengths.expected(7, 64) == 64


@given(_ROWS, _ROWS)
def test_what_two_have_learnt_apart_is_what_one_had_learnt_alone(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    merged = OutputLengths(json.loads(json.dumps(learnt(one).plain())))
    merged.merge(json.loads(json.dumps(learnt(other).plain())))
    assert merged.plain() == learnt(one + other).plain()
    assert merged.expected(50, 10**6) == learnt(one + other).expected(50, 10**6)


def test_an_earlier_run_is_soon_outvoted() -> None:
    lengths = learnt([(100, 10)] * 100_000).faded()
    assert lengths.expected(100, 500) == 10
    for _ in range(300):
        lengths.add(100, 50)
    assert lengths.expected(100, 500) == 40


def test_the_shortest_prompts_have_a_place() -> None:
    assert learnt([(0, 3), (1, 4), (2, 5), (3, 7)]).plain() == {"0": [1, 3], "1": [1, 4], "2": [2, 12]}
