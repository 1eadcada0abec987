"""The loop of a replica: feed the engine across shard borders, step it, hand on what it finishes."""

from __future__ import annotations

import queue
import time
from collections import deque

from batchjobs.channel import Sender
from batchjobs.collect import Collector, Ended
from batchjobs.commands import Commands
from batchjobs.engines.base import Engine, Request, RequestRejected
from batchjobs.prepare import Preparer
from batchjobs.prompts import RowError
from batchjobs.stopwatch import Stopwatch
from batchjobs.window import OpenShard
from schemas.records import ErrorCode

_PROGRESS_S = 1.0  # seconds between progress messages


class Feeder:
    """Feeds the engine across shard borders, and hands what it finishes to the collector."""

    def __init__(
        self, engine: Engine, preparer: Preparer, collector: Collector, commands: Commands, events: Sender
    ) -> None:
        self._engine, self._preparer, self._collector = engine, preparer, collector
        self._commands, self._events = commands, events
        self._slots = engine.info.max_num_seqs
        self._backlog = 2 * self._slots  # enough for the scheduler to choose from, little enough to be cheap
        self._waiting: deque[tuple[Request, OpenShard]] = deque()
        self._in_flight: dict[int, tuple[Request, OpenShard]] = {}
        self._all_prepared = False
        self._next_progress = 0.0
        self.watch = Stopwatch()

    def run(self) -> None:
        """Until every shard is committed, or a stop has drained. Raises what the engine or a thread raised."""
        self._preparer.start()
        self._collector.start()
        try:
            while self._step():
                self._check_threads()
                self.report(only_when_due=True)
        finally:
            self._collector.finish()  # also when the engine died: what it had answered is not lost
        self._check_threads()

    def _step(self) -> bool:
        stop_by = self._commands.stop_by
        if stop_by is not None:
            self._preparer.stop()
            self._waiting.clear()
            if not self._in_flight or time.monotonic() > stop_by:
                return False
        else:
            self._feed()
        if self._in_flight:
            self._collect()
        elif self._all_prepared and not self._waiting:
            return False
        self.watch.lap(self._label())
        return True

    def _label(self) -> str:
        """What the last moments were: every engine-second has one label."""
        if self._commands.stop_by is not None:
            return "draining"
        if self._all_prepared and not self._waiting:
            return "tail" if len(self._in_flight) < self._slots / 2 else "productive"
        return "starved" if not self._waiting and len(self._in_flight) < self._slots else "productive"

    def _feed(self) -> None:
        ended: list[Ended] = []
        while len(self._in_flight) < self._backlog and (self._waiting or self._take_window()):
            request, shard = self._waiting.popleft()
            self.watch.fed()
            try:
                self._engine.submit(request)
                self._in_flight[request.row] = (request, shard)
            except RequestRejected as problem:
                error = RowError(
                    request.row, ErrorCode.ENGINE_REJECTED, str(problem), len(request.token_ids), request.request_hash
                )
                ended.append((error, request, shard))
        if ended:
            self._collector.ended(ended)

    def _take_window(self) -> bool:
        """Fill `_waiting` from the next prepared window; waits for it only while the engine has nothing to do."""
        while not self._all_prepared and not self._waiting:
            try:
                window = self._preparer.windows.get(block=not self._in_flight, timeout=0.2)
            except queue.Empty:
                return False
            if window is None:
                self._all_prepared = True
            else:
                self._waiting.extend(window)
        return bool(self._waiting)

    def _collect(self) -> None:
        done = self._engine.step()
        if done:
            self.watch.answered()
            self._collector.ended([(completion, *self._in_flight.pop(completion.row)) for completion in done])

    def _check_threads(self) -> None:
        for thread in (self._preparer, self._collector):
            if thread.failure is not None:
                raise thread.failure

    def report(self, only_when_due: bool = False) -> None:
        """Send the figures so far to the dispatcher, once a second at the most."""
        if only_when_due and time.monotonic() < self._next_progress:
            return
        self._next_progress = time.monotonic() + _PROGRESS_S
        tally, stats = self._collector.tally, self._engine.stats()
        self._events.send(
            "progress",
            rows={"ok": tally.ok, "rejected": tally.rejected, "errors": tally.errors, "reused": self._collector.reused},
            tokens={"prompt": tally.prompt_tokens, "output": tally.output_tokens, "cached": tally.cached_tokens},
            stats={name: getattr(stats, name) for name in stats.__slots__},
            seconds=self.watch.seconds(),
            latency={name: histogram.bins() for name, histogram in self._collector.latencies.items()},
        )
