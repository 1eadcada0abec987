"""How long answers are, learnt from finished rows: the mean output tokens by length of the prompt."""

from __future__ import annotations

from collections.abc import Mapping

_BUCKETS = 64  # bucket n holds prompts of 2**(n-1) to 2**n - 1 tokens
_MOST_EARLIER = 100  # rows of a bucket that an earlier run may speak for: this run's own are soon heard

Plain = Mapping[str, list[int]]  # shortest prompt of a bucket -> [rows, output tokens], as JSON has it


class OutputLengths:
    """Rows and output tokens by power of two of the prompt's tokens.

    One thread adds while others read: lists of a fixed length, so nobody sees one grow.
    """

    def __init__(self, known: Plain | None = None) -> None:
        self._rows, self._tokens = [0] * _BUCKETS, [0] * _BUCKETS
        self._all_rows = self._all_tokens = 0
        self.merge(known or {})

    def add(self, prompt_tokens: int, output_tokens: int) -> None:
        """A row was answered."""
        self._count(prompt_tokens.bit_length(), 1, output_tokens)

    def merge(self, other: Plain) -> None:
        """Add what others have learnt."""
        for shortest, (rows, tokens) in other.items():
            self._count(int(shortest).bit_length(), rows, tokens)

    def _count(self, bucket: int, rows: int, tokens: int) -> None:
        bucket = min(bucket, _BUCKETS - 1)
        self._rows[bucket] += rows
        self._tokens[bucket] += tokens
        self._all_rows += rows
        self._all_tokens += tokens

    def expected(self, prompt_tokens: int, max_tokens: int) -> float:
        """Expected output tokens, never above `max_tokens`; `max_tokens` while nothing is known."""
        bucket = min(prompt_tokens.bit_length(), _BUCKETS - 1)
        if self._rows[bucket]:
            return min(max_tokens, self._tokens[bucket] / self._rows[bucket])
        return min(max_tokens, self._all_tokens / self._all_rows) if self._all_rows else max_tokens

    def plain(self) -> dict[str, list[int]]:
        """All of it, fit for JSON."""
        pairs = enumerate(zip(self._rows, self._tokens, strict=True))
        return {str(1 << n >> 1): [rows, tokens] for n, (rows, tokens) in pairs if rows}

    def faded(self) -> OutputLengths:
        """The same means with little weight, as a later run starts with them."""
        return OutputLengths({shortest: _faded(*counts) for shortest, counts in self.plain().items()})


def _faded(rows: int, tokens: int) -> list[int]:
    kept = min(rows, _MOST_EARLIER)
    return [kept, round(tokens * kept / rows)]
