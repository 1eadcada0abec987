"""How many shards make a window: enough to order well, few enough for the memory.

What a window holds: token ids, about 36 bytes each in Python, and kept columns. A far-looking one grows while it has
fewer than 2 million prompt tokens (72 MB, and 32 MB more while it is sorted) and 256 MiB of kept columns; the shard
that passes such a bound is its last. Two windows are open at the most, so looking far costs at most twice that and one
shard each, however many rows the job has.
"""

from __future__ import annotations

from collections.abc import Sequence

from batchjobs.engines.base import Request
from batchjobs.replica.window import OpenShard

_LEAST_SHARDS = 2
_ROWS = 4  # times max_num_seqs: the engine always has a choice
_FAR_ROWS = 16  # times max_num_seqs: brings together what begins alike
_FAR_TOKENS = 2_000_000
_FAR_BYTES = 256 * 2**20  # of kept columns


class WindowSize:
    """Counts what a window has so far."""

    def __init__(self, max_num_seqs: int, shard_by_shard: bool = False) -> None:
        self._slots, self._shard_by_shard = max_num_seqs, shard_by_shard
        self._shards = self._rows = self._tokens = self._bytes = 0

    def add(self, shard: OpenShard, requests: Sequence[Request]) -> None:
        """A shard joins, with the requests that it still needs."""
        self._shards += 1
        self._rows += len(requests)
        self._tokens += sum(len(request.token_ids) for request in requests)
        self._bytes += sum(batch.nbytes for batch in shard.kept)

    def is_full(self, far: bool) -> bool:
        """Whether it has what it needs; `far`: and cannot grow further for the sake of a better order."""
        if self._shard_by_shard:
            return self._shards == 1
        if self._shards < _LEAST_SHARDS or self._rows < _ROWS * self._slots:
            return False
        may_grow = self._rows < _FAR_ROWS * self._slots and self._tokens < _FAR_TOKENS and self._bytes < _FAR_BYTES
        return not (far and may_grow)
