"""Which row kills the engine."""

from __future__ import annotations

from batchjobs.supervision.suspects import Suspects


def test_many_rows_in_flight_are_tested_sixteen_at_a_time() -> None:
    suspects = Suspects({})
    suspects.died(range(40), "boom")
    assert [len(group) for group in suspects.groups()] == [16, 16, 8]


def test_a_group_that_dies_is_tested_row_by_row_before_the_others() -> None:
    suspects = Suspects({})
    suspects.died(range(40), "boom")
    suspects.died(range(16), "boom")
    assert suspects.groups()[:16] == [[row] for row in range(16)]
    assert [len(group) for group in suspects.groups()[16:]] == [16, 8]


def test_a_row_that_was_alone_at_two_deaths_is_quarantined_with_the_engines_words() -> None:
    suspects = Suspects({})
    suspects.died([3, 4], "first")
    suspects.died([3], "second")
    assert suspects.quarantined == {}
    suspects.died([3], "third")
    assert suspects.quarantined == {3: "third"}
    assert suspects.groups() == [[4]]


def test_a_row_that_finishes_is_cleared() -> None:
    suspects = Suspects({})
    suspects.died([3, 4, 5], "boom")
    suspects.finished([4, 9])
    assert suspects.groups() == [[3], [5]]


def test_a_quarantine_counts_once_the_engine_has_worked_since() -> None:
    suspects = Suspects({})
    for words in ("a", "b", "c"):
        suspects.died([3], words)
    assert suspects.take_confirmed() == {}
    suspects.finished([4])
    assert suspects.take_confirmed() == {3: "c"}


def test_row_after_row_without_a_success_is_a_broken_engine() -> None:
    suspects = Suspects({})
    for row in (1, 2, 3):
        assert not suspects.engine_is_broken
        for _ in range(3):
            suspects.died([row], "boom")
    assert suspects.engine_is_broken
