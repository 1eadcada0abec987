"""The shards that are left, handed out as replicas ask, so that a slow one does not hold the job."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Collection, Sequence


class ShardPool:
    """Each replica works through a block of its own, neighbours in the dataset (rows that share a prefix often are);
    one that has no more takes half of the largest block. Safe to use from several threads.
    """

    def __init__(self, shards: Sequence[int], replicas: int) -> None:
        size, more = divmod(len(shards), replicas)
        starts = [number * size + min(number, more) for number in range(replicas + 1)]
        self._blocks = [deque(shards[a:b]) for a, b in itertools.pairwise(starts)]
        self._taken: list[set[int]] = [set() for _ in range(replicas)]
        self._returned: deque[int] = deque()  # of the dead, for whoever asks first
        self._reserved: list[deque[int]] = [deque() for _ in range(replicas)]  # shards with suspects of its last life
        self._again: set[int] = set()
        self._lock = threading.Lock()

    def take(self, replica: int) -> tuple[int, bool] | None:
        """The next shard, and whether a replica had it before (its rows may be in the journal); None: none is left."""
        with self._lock:
            source = self._reserved[replica] or self._returned or self._block(replica)
            if not source:
                return None
            shard = source.popleft()
            self._taken[replica].add(shard)
            return shard, shard in self._again

    def has_any_for(self, replica: int) -> bool:
        """Whether there is something to take now."""
        with self._lock:
            return bool(self._reserved[replica] or self._returned or any(self._blocks))

    def _block(self, replica: int) -> deque[int]:
        if not self._blocks[replica]:
            largest = max(self._blocks, key=len)
            half = (len(largest) + 1) // 2
            self._blocks[replica] = deque(reversed([largest.pop() for _ in range(half)]))
        return self._blocks[replica]

    def committed(self, replica: int, shard: int) -> None:
        """A shard of this replica has its part."""
        with self._lock:
            self._taken[replica].discard(shard)

    def ended(self, replica: int, suspicious: Collection[int] = ()) -> None:
        """A life is over. What it had and did not commit goes back: `suspicious` shards to its own next life, which
        runs their suspects apart, the rest to whoever asks first."""
        with self._lock:
            open_shards = sorted(self._taken[replica])
            self._taken[replica].clear()
            self._again.update(open_shards)
            self._reserved[replica].extend(shard for shard in open_shards if shard in suspicious)
            self._returned.extend(shard for shard in open_shards if shard not in suspicious)

    def gave_up(self, replica: int) -> None:
        """This replica lives no more: what was kept for it is for the others."""
        with self._lock:
            self._returned.extend(self._reserved[replica])
            self._reserved[replica].clear()
