"""The order that keeps together what begins alike, held against a tree built token block by token block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batchjobs.replica.prefixes import BLOCK_TOKENS, PrefixTree

# Few different blocks, so that prompts share prefixes of every depth; a rest that is no whole block.
_BLOCKS = st.lists(st.integers(0, 2), max_size=6)
_PROMPTS = st.lists(st.tuples(_BLOCKS, st.integers(0, BLOCK_TOKENS - 1)), max_size=24).map(
    lambda made: [[block for block in blocks for _ in range(BLOCK_TOKENS)] + [9] * rest for blocks, rest in made]
)
_WORK = st.integers(0, 5)


def blocks(ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    whole = len(ids) // BLOCK_TOKENS
    return tuple(tuple(ids[i * BLOCK_TOKENS : (i + 1) * BLOCK_TOKENS]) for i in range(whole))


def groups(prompts: list[list[int]]) -> dict[Any, list[int]]:
    """Every prefix of whole blocks -> the prompts that begin with it."""
    found: dict[Any, list[int]] = {}
    for index, ids in enumerate(prompts):
        path = blocks(ids)
        for depth in range(len(path) + 1):
            found.setdefault(path[:depth], []).append(index)
    return found


@given(_PROMPTS, st.data())
def test_every_prompt_comes_once_and_what_begins_alike_stands_together_at_every_depth(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    work = data.draw(st.lists(_WORK, min_size=len(prompts), max_size=len(prompts)))
    ordered = PrefixTree(prompts).depth_first(work)
    assert sorted(ordered) == list(range(len(prompts)))
    place = {index: position for position, index in enumerate(ordered)}
    for members in groups(prompts).values():
        places = sorted(place[index] for index in members)
        assert places == list(range(places[0], places[0] + len(places)))


@given(_PROMPTS, st.data())
def test_what_has_the_most_work_goes_first_in_every_group_and_so_do_the_groups(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    work = data.draw(st.lists(_WORK, min_size=len(prompts), max_size=len(prompts)))
    ordered = PrefixTree(prompts).depth_first(work)
    for members in groups(prompts).values():
        inside = [index for index in ordered if index in members]
        assert not inside or work[inside[0]] == max(work[index] for index in members)


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=BLOCK_TOKENS - 1), max_size=20), st.data())
def test_prompts_that_share_no_block_go_longest_first_and_equals_keep_their_order(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    work = data.draw(st.lists(_WORK, min_size=len(prompts), max_size=len(prompts)))
    expected = sorted(range(len(prompts)), key=lambda index: -work[index])
    assert PrefixTree(prompts).depth_first(work) == expected


@given(_PROMPTS)
def test_distinct_tokens_count_each_block_of_the_tree_once(prompts: list[list[int]]) -> None:
    tree = PrefixTree(prompts)
    nodes = sum(1 for path in groups(prompts) if path)
    rests = sum(len(ids) % BLOCK_TOKENS for ids in prompts)
    assert tree.distinct_tokens == nodes * BLOCK_TOKENS + rests
    assert tree.shared_tokens + tree.distinct_tokens == tree.total_tokens == sum(map(len, prompts))


@given(_PROMPTS)
def test_common_tokens_are_those_shared_along_the_path_of_almost_all_prompts(prompts: list[list[int]]) -> None:
    hot = [(path, members) for path, members in groups(prompts).items() if path and len(members) >= 0.9 * len(prompts)]
    deepest = max((path for path, _ in hot), key=len, default=())
    along = [len(members) - 1 for path, members in hot if path == deepest[: len(path)]]
    assert PrefixTree(prompts).common_tokens == sum(along) * BLOCK_TOKENS


def test_a_system_prompt_then_examples_then_a_document_are_groups_in_groups() -> None:
    def block(number: int) -> list[int]:
        return [number] * BLOCK_TOKENS

    def prompt(*numbers: int) -> list[int]:
        return [token for number in numbers for token in block(number)]

    prompts = [prompt(1, 2, 4, 10), prompt(1, 3, 6, 11), prompt(7, 12), prompt(1, 2, 5, 13), prompt(1, 3, 6, 14),
               prompt(1, 2, 4, 15)]  # fmt: skip
    assert PrefixTree(prompts).depth_first([1, 2, 3, 4, 9, 5]) == [4, 1, 5, 0, 3, 2]


def test_no_prompt_at_all_is_no_trouble() -> None:
    tree = PrefixTree([])
    assert (tree.depth_first([]), tree.total_tokens, tree.common_tokens) == ([], 0, 0)


def test_a_chain_of_thousands_of_groups_in_groups_is_no_deep_recursion() -> None:
    """Each prompt is the one before and one block more: with 4,000 rows, a tree 4,000 deep."""
    chain = [0] * (4000 * BLOCK_TOKENS)
    prompts = [chain[: length * BLOCK_TOKENS] for length in range(1, 4001, 4)]
    ordered = PrefixTree(prompts).depth_first([len(ids) for ids in prompts])
    assert ordered == list(range(999, -1, -1))
