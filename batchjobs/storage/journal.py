"""The journal: finished rows of shards that are still open, so that a crash costs what was in flight, not the shard.

A fragment is an Arrow IPC stream of result columns with a checksum before it. It is published whole, never changed, and
deleted when all its rows are in parts.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterator

import pyarrow as pa

from batchjobs.rows.results import Result, of_stored, result_batch
from batchjobs.storage.output import JOURNAL
from batchjobs.storage.store import Store
from schemas.records import RESULT_COLUMNS

logger = logging.getLogger("batchjobs.journal")

_MAGIC = b"batchjobs journal 1\n"
_FLUSH_S = 3.0
_FLUSH_ROWS = 2000


class DamagedFragment(Exception):
    """A fragment that is not what was published."""


def fragment_bytes(results: list[Result]) -> bytes:
    """The rows as a fragment."""
    batch = result_batch(results, "")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return _MAGIC + hashlib.sha256(body).digest() + body


def fragment_results(data: bytes) -> list[Result]:
    """The rows of a fragment; raises DamagedFragment."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise DamagedFragment("its checksum does not agree")
    table = pa.ipc.open_stream(body).read_all()
    columns = [table.column(name).to_pylist() for name in RESULT_COLUMNS]
    return [of_stored(values) for values in zip(*columns, strict=True)]


def fragment_name(attempt: int, number: int) -> str:
    """Name of a fragment: attempts sort first, so that the lowest one wins."""
    return f"{JOURNAL}/{attempt:04d}-{number:06d}.arrow"


class Journal:
    """The fragments of one output, as one replica sees and extends them. Not thread-safe: the collector owns it.

    `earlier` is filled by `load` and `look_again`, and only read by others.
    """

    def __init__(self, store: Store, attempt: int, shard_of: Callable[[int], int]) -> None:
        self.earlier: dict[int, Result] = {}  # by row: what earlier attempts finished in shards that are still open
        self._store, self._attempt, self._shard_of = store, attempt, shard_of
        self._seen: set[str] = set()
        self._fragments: dict[str, set[int]] = {}  # the open shards that each fragment has rows of
        self._pending: list[tuple[int, Result]] = []
        self._number = 0
        self._flushed = time.monotonic()

    def load(self, committed: Collection[int]) -> None:
        """Read what earlier attempts left; drop damaged fragments and those whose rows are all in parts."""
        for name, results in self._unread():
            still_open = [(self._shard_of(r.row), r) for r in results]
            still_open = [(shard, r) for shard, r in still_open if shard not in committed]
            for _, result in still_open:
                self.earlier.setdefault(result.row, result)
            self._fragments[name] = {shard for shard, _ in still_open}
        self._delete_used_up()

    def look_again(self) -> None:
        """Read what replicas beside this one have left since: one of their shards is now ours. Any thread may."""
        for _, results in self._unread():
            for result in results:
                self.earlier.setdefault(result.row, result)

    def _unread(self) -> Iterator[tuple[str, list[Result]]]:
        """Fragments of others that were not read before, whole ones only."""
        ours = f"{self._attempt:04d}-"
        for short in self._store.names(JOURNAL):
            name = f"{JOURNAL}/{short}"
            if name in self._seen or short.startswith(ours):
                continue
            self._seen.add(name)
            data = self._store.read(name)
            if data is None:  # its rows are in parts by now
                continue
            try:
                results = fragment_results(data)
            except (DamagedFragment, pa.ArrowException, KeyError, TypeError) as damage:
                logger.warning("The journal fragment %s is dropped: %s.", name, damage)
                self._store.delete([name])
                continue
            yield name, results

    def add(self, shard: int, result: Result) -> None:
        """A row of an open shard is finished."""
        self._pending.append((shard, result))

    def committed(self, shard: int) -> None:
        """A shard has its part: its rows need no journal any more."""
        self._pending = [(other, result) for other, result in self._pending if other != shard]
        for shards in self._fragments.values():
            shards.discard(shard)
        self._delete_used_up()

    def _delete_used_up(self) -> None:
        used_up = [name for name, shards in self._fragments.items() if not shards]
        self._store.delete(used_up)
        for name in used_up:
            del self._fragments[name]

    @property
    def is_flushed(self) -> bool:
        """Whether nothing is pending."""
        return not self._pending

    def flush_if_due(self) -> None:
        """Publish what is pending every few seconds, and every few thousand rows."""
        if len(self._pending) >= _FLUSH_ROWS or time.monotonic() - self._flushed >= _FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Publish what is pending as one fragment."""
        self._flushed = time.monotonic()
        if self._pending:
            name = self._publish(fragment_bytes([result for _, result in self._pending]))
            self._fragments[name] = {shard for shard, _ in self._pending}
            self._pending = []

    def _publish(self, data: bytes) -> str:
        """The name that the fragment has now. One with other rows in it is not ours to count on, or to delete."""
        while True:
            self._number += 1
            name = fragment_name(self._attempt, self._number)
            if self._store.publish(name, data) or self._store.read(name) == data:
                return name


def clean_journal(store: Store) -> None:
    """Remove every fragment, once every shard has its part; only the lock's holder may."""
    store.delete([f"{JOURNAL}/{name}" for name in store.names(JOURNAL)])
