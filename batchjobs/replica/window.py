"""Shards and windows while they are open: what is prepared, in flight and done of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pyarrow as pa

from batchjobs.engines.base import Request
from batchjobs.rows.results import Result
from schemas.plan import Shard


@dataclass(slots=True)
class OpenShard:
    """A shard between its reading and its commit."""

    index: int
    shard: Shard
    kept: list[pa.RecordBatch] = field(default_factory=list)  # kept columns of the rows that the filter left
    results: list[Result | None] = field(default_factory=list)  # by position in the shard; None: filtered, or not done
    filtered: int = 0
    missing: int = 0  # requests without a result
    revision: int = 0  # of the part: above 0 it replaces one
    opened: float = field(default_factory=time.monotonic)
    window: Window | None = None

    def put(self, result: Result) -> None:
        """Set the result of one row."""
        self.results[result.row - self.shard.first_row] = result


Fed = list[tuple[Request, OpenShard]]  # the requests of a window, in feeding order
Followers = dict[int, list[tuple[int, OpenShard]]]  # row that is run -> rows that get a copy of its result


@dataclass(slots=True)
class Window:
    """Shards that are prepared and ordered together before they are fed. Its requests travel apart: see `Fed`."""

    open_shards: int
    places: threading.Semaphore  # a place comes back when the window's last shard is committed
    followers: Followers = field(default_factory=dict)

    def committed(self) -> None:
        """One of its shards is committed."""
        self.open_shards -= 1
        if self.open_shards == 0:
            self.places.release()
