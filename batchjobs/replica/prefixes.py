"""The tree of the prompts' token blocks: what they share, and an order that keeps together what is shared.

The tree is never built token by token. Sorted, prompts with a common prefix stand side by side, and how many blocks
each shares with the one before it says everything (as in a suffix array with its LCP array). Sorting and comparing run
over bytes, in C: n prompts of together m tokens take O(m log n) in memcmp and O(n log n) in Python, whatever is shared.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

BLOCK_TOKENS = 16  # vLLM's block on GPUs, the unit of its prefix cache
_BLOCK_BYTES = BLOCK_TOKENS * array("q").itemsize
_ALMOST_ALL = 0.9  # of the prompts: what so many share stays in the cache under any order


@dataclass(slots=True)
class _Node:
    """Prompts that share `depth` blocks. A child is a node that shares more, or a prompt by its position."""

    depth: int
    longest: tuple[float, int] = (float("-inf"), 0)  # greatest work, then the earliest prompt
    children: list[tuple[tuple[float, int], _Node | int]] = field(default_factory=list)

    def add(self, longest: tuple[float, int], child: _Node | int) -> None:
        self.children.append((longest, child))
        self.longest = max(self.longest, longest)


class PrefixTree:
    """Prompts by the whole blocks of tokens with which they begin."""

    def __init__(self, prompts: Sequence[list[int]]) -> None:
        keys = [array("q", ids[: len(ids) // BLOCK_TOKENS * BLOCK_TOKENS]).tobytes() for ids in prompts]
        self._sorted = sorted(range(len(keys)), key=keys.__getitem__)
        in_order = [keys[i] for i in self._sorted]
        # By position in sorted order: blocks shared with the prompt before; 0 for the first, and for the end.
        self._shared = [0, *map(_common_blocks, in_order, in_order[1:]), 0] if keys else [0]
        self._middle_blocks = len(in_order[len(in_order) // 2]) // _BLOCK_BYTES if keys else 0
        self.total_tokens = sum(map(len, prompts))

    @property
    def shared_tokens(self) -> int:
        """Tokens that need not be computed if each shared block is computed once."""
        return sum(self._shared) * BLOCK_TOKENS

    @property
    def distinct_tokens(self) -> int:
        """Tokens of the whole tree, each shared block counted once: the working set."""
        return self.total_tokens - self.shared_tokens

    @property
    def common_tokens(self) -> int:
        """Of the shared tokens, those of a prefix that almost all prompts share: saved under any order.

        Prompts that share a prefix are a run in sorted order; a run of almost all contains the middle.
        """
        if not self._sorted:
            return 0
        with_middle = sorted(self._shared_with_middle(), reverse=True)
        depth = with_middle[ceil(_ALMOST_ALL * len(with_middle)) - 1]
        return (sum(min(blocks, depth) for blocks in with_middle) - depth) * BLOCK_TOKENS

    def _shared_with_middle(self) -> list[int]:
        """Blocks that each prompt shares with the middle one, itself included."""
        middle = len(self._sorted) // 2
        found = [self._middle_blocks]
        for way in (range(middle, 0, -1), range(middle + 1, len(self._sorted))):
            least = self._middle_blocks
            for position in way:
                least = min(least, self._shared[position])
                found.append(least)
        return found

    def depth_first(self, work: Sequence[float]) -> list[int]:
        """Positions of the prompts, group after group, in groups as in the whole: what has the most work goes first.

        `work` is of each prompt; a group has that of its greatest prompt. Equals keep their order.
        """
        ordered: list[int] = []
        stack: list[_Node | int] = [self._root(work)]
        while stack:
            item = stack.pop()
            if isinstance(item, int):
                ordered.append(item)
            else:
                stack.extend(child for _, child in sorted(item.children, key=_longest))
        return ordered

    def _root(self, work: Sequence[float]) -> _Node:
        """The tree with only the nodes at which prompts part: at most one for each prompt."""
        path = [_Node(0)]
        for position, index in enumerate(self._sorted):
            before, after = self._shared[position], self._shared[position + 1]
            _close(path, before)
            if after > before:
                path.append(_Node(after))
            path[-1].add((work[index], -index), index)
        _close(path, 0)
        return path[0]


def _close(path: list[_Node], depth: int) -> None:
    """End the groups of the path that share more than `depth` blocks."""
    while path[-1].depth > depth:
        closed = path.pop()
        if path[-1].depth < depth:
            path.append(_Node(depth))
        path[-1].add(closed.longest, closed)


def _longest(child: tuple[tuple[float, int], _Node | int]) -> tuple[float, int]:
    return child[0]


def _common_blocks(one: bytes, other: bytes) -> int:
    """How many whole blocks two keys have in common, by halving: O(bytes) in all."""
    low, high = 0, min(len(one), len(other)) // _BLOCK_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        piece = slice(low * _BLOCK_BYTES, middle * _BLOCK_BYTES)
        if one[piece] == other[piece]:
            low = middle
        else:
            high = middle - 1
    return low
