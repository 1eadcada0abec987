"""How alike two answers are."""

from __future__ import annotations

import pytest

from batchjobs.comparison.texts import common_beginning, f1, normalised_words, words


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("Yes, it is.", "yes it is"),
        ("A  b\n\tc", "a b c"),
        ("“Straße” — ja", '"STRASSE" - ja'),
        ("ﬁve ①", "five 1"),  # a ligature and a circled digit
        ("e\u0301te\u0301", "été"),
        ("你好，世界。", "你好 世界"),
    ],
)
def test_case_white_space_punctuation_and_unicode_form_do_not_count(before: str, now: str) -> None:
    assert normalised_words(before) == normalised_words(now)


@pytest.mark.parametrize(("before", "now"), [("3 + 4", "3 4"), ("is", "are"), ("a b", "b a"), ("ab", "a b")])
def test_what_is_said_counts(before: str, now: str) -> None:
    assert normalised_words(before) != normalised_words(now)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("a b c d", "a b c d", 1),
        ("a b c d", "d c b a", 1),  # order does not count
        ("a b c d", "a b", 2 * 1 * 0.5 / 1.5),  # precision 1, recall 0.5
        ("a a b", "a b b", 2 / 3),  # a word counts as often as it is there
        ("a", "b", 0),
        ("", "", 1),
        ("", "a", 0),
        ("你好世界", "你好", 2 / 3),
    ],
)
def test_f1_is_the_harmonic_mean_of_precision_and_recall_over_words(before: str, now: str, expected: float) -> None:
    assert f1(words(before), words(now)) == pytest.approx(expected)


def test_the_common_beginning_ends_at_the_first_word_that_differs() -> None:
    assert common_beginning(words("a b c d"), words("a b x d")) == 2
    assert common_beginning(words("a b"), words("a b c")) == 2
    assert common_beginning([], words("a")) == 0
