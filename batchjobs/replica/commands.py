"""What the dispatcher tells a replica."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable

from batchjobs.replica.assignment import Assignment
from batchjobs.replica.channel import Sender, receive


def _nothing() -> None:
    """Until the replica has a journal."""


class Commands(threading.Thread):
    """Reads the dispatcher's messages. When they end, the dispatcher is gone, and so is this group."""

    def __init__(self, events: Sender) -> None:
        super().__init__(name="commands", daemon=True)
        self.stop_by: float | None = None  # monotonic time at which running requests are dropped
        self.handed_on: Callable[[], None] = _nothing  # called before a shard is given that another replica had
        self._events = events
        self._shards: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        # Not sys.stdin: the interpreter waits for its lock at exit, and this thread holds it for ever.
        self._messages = receive(os.fdopen(sys.stdin.fileno(), "rb", closefd=False))

    def assignment(self) -> Assignment:
        """The first message: what to do."""
        return Assignment.model_validate(next(self._messages)["assignment"])

    def next_shard(self) -> int | None:
        """Ask for a shard; None when there is none left, or the run stops."""
        self._events.send("ask")
        return self._shards.get()

    def run(self) -> None:
        """Serve until end of file."""
        for message in self._messages:
            if message["kind"] == "shard":
                if message["again"]:
                    self.handed_on()
                self._shards.put(message["shard"])
            elif message["kind"] == "stop":
                self.stop_by = time.monotonic() + message["drain_seconds"]
                self._shards.put(None)
        os.killpg(0, signal.SIGKILL)
