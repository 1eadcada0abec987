"""What is found in rows that are looked at: lengths of prompts, problems with examples, what prompts share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from batchjobs.accounts.histogram import Lengths
from batchjobs.accounts.lengths import OutputLengths
from batchjobs.engines.base import Request
from batchjobs.replica.prefixes import PrefixTree
from batchjobs.rows.prompts import RowError
from batchjobs.settings.sample import Expected, Looked, Sample
from schemas.description import Example, Problems
from schemas.figures import Distribution
from schemas.records import ErrorCode

_EXAMPLES = 3  # of each problem
_NAMED = {
    ErrorCode.NULL_PROMPT: "null",
    ErrorCode.EMPTY_PROMPT: "empty",
    ErrorCode.PROMPT_TOO_LONG: "too_long",
}
_COMPARED = 4_096  # prompts whose beginnings are compared: their tokens are all in memory


class Findings:
    """Adds up what is looked at, up to `rows` rows."""

    def __init__(self, rows: int, expected: Expected, id_column: str | None = None) -> None:
        """`expected` says how long answers will be; `id_column` is checked if all rows are to be looked at."""
        self.sample = Sample()
        self._expected, self._every = expected, max(1, rows // _COMPARED)
        self._found: Counter[str] = Counter()
        self._examples: dict[str, list[Example]] = {}
        self._first_rows: dict[str, int] = {}  # request hash -> the row that had it first
        self._filtered = 0
        self._lengths = Lengths()
        self._prompts: list[list[int]] = []
        self._id_column, self._ids, self._ids_seen = id_column, set[object](), 0

    def add_ids(self, batch: pa.RecordBatch) -> None:
        """Remember the ids of some rows."""
        if self._id_column is not None:
            self._ids.update(batch.column(self._id_column).to_pylist())
            self._ids_seen += batch.num_rows

    def add(self, looked: Looked) -> None:
        """Count some rows of a place."""
        self.sample.look(looked, self._expected)
        self._filtered += looked.filtered
        for made in looked.made:
            if isinstance(made, RowError):
                self._problem(_NAMED.get(made.code, str(made.code)), made.row, made.message)
            else:
                self._request(made)

    def _request(self, request: Request) -> None:
        self._lengths.add(len(request.token_ids))
        first = self._first_rows.setdefault(request.request_hash or str(request.row), request.row)
        if first != request.row:
            self._problem("duplicate", request.row, f"the same request as row {first}")
        if request.row % self._every == 0 or self.sample.read <= _COMPARED:
            self._prompts.append(request.token_ids)

    def _problem(self, problem: str, row: int, text: str) -> None:
        self._found[problem] += 1
        shown = self._examples.setdefault(problem, [])
        if len(shown) < _EXAMPLES:
            shown.append(Example(row=row, problem=problem, text=text))

    def problems(self) -> Problems:
        """All of them."""
        own = ("null", "empty", "duplicate", "too_long")
        return Problems(
            looked_at=self.sample.read,
            filtered=self._filtered,
            **{name: self._found[name] for name in own},
            other={name: count for name, count in self._found.items() if name not in own},
            duplicate_ids=self._ids_seen - len(self._ids) if self._id_column is not None else None,
            examples=[example for shown in self._examples.values() for example in shown],
        )

    def prompt_tokens(self) -> Distribution:
        """Of rows that can be generated."""
        return self._lengths.distribution()

    def output_tokens(self, lengths: OutputLengths) -> Distribution | None:
        """Of the answers that are expected for these rows; None if no earlier run has told."""
        if not lengths.plain():
            return None
        requests = [request for place in self.sample.places.values() for request in place.requests]
        return _distribution(round(lengths.expected(*request)) for request in requests)

    def shared_prefix(self) -> float | None:
        """Share of the prompt tokens in whole blocks that an earlier row of these begins with, too."""
        tree = PrefixTree(self._prompts)
        return tree.shared_tokens / tree.total_tokens if tree.total_tokens else None


def _distribution(tokens: Iterable[int]) -> Distribution:
    lengths = Lengths()
    for length in tokens:
        lengths.add(length)
    return lengths.distribution()
