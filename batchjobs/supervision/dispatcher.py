"""One life of a replica, from the outside: start it, hand out shards, watch it, stop it. Never touches row data."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from batchjobs.accounts.figures import AttemptFigures
from batchjobs.storage.checkpoint import Commit
from batchjobs.supervision.deadlines import Deadlines
from batchjobs.supervision.process import ReplicaProcess

logger = logging.getLogger("batchjobs")

_TICK_S = 0.5
_LEAVE_S = 30.0  # to publish and to free the engine, after the drain time


class Dispatcher:
    """Runs shards through one replica until it leaves or dies."""

    def __init__(
        self,
        figures: AttemptFigures,
        next_shard: Callable[[], tuple[int, bool] | None],
        deadlines: Deadlines,
        committed: Callable[[Commit], None],
        ended: Callable[[list[int]], None],
        started: Callable[[], None],
        tick: Callable[[ReplicaProcess], None],
        stop: StopSignal,
        drain_seconds: float,
    ) -> None:
        self.figures = figures
        self._next_shard, self._deadlines, self._committed = next_shard, deadlines, committed
        self._ended, self._started, self._tick = ended, started, tick
        self._stop, self._drain_seconds = stop, drain_seconds

    def run(self, process: ReplicaProcess) -> AttemptFigures:
        """Until the replica has left; nothing of it is there afterwards. Its failure, if any, is in the figures."""
        self.figures.started = process.started
        try:
            self._serve(process)
        finally:
            process.kill()
            self.figures.held_s, self.figures.memory = process.held_s(), process.peak_memory()
            self.figures.is_over = True
        self._tick(process)
        return self.figures

    def _serve(self, process: ReplicaProcess) -> None:
        leave_by, next_tick = float("inf"), 0.0
        while time.monotonic() < leave_by:
            if self._stop.asked and leave_by == float("inf"):
                leave_by = self._ask_to_leave(process)
            message = self._next_message(process)
            if message["kind"] == "end":
                return self._left_by_itself(process)
            self._handle(process, message)
            if self.figures.said_bye:  # everything is published; what its engine would still do is only farewell
                return None
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + _TICK_S
                self.figures.held_s = process.held_s()
                self._tick(process)
                missed = self._deadlines.missed(self.figures)
                if missed is not None and self.figures.failure is None:  # what the replica said of its end stands
                    self.figures.failure, self.figures.engine_failed = missed, True
                    return None
        self.figures.stopped = True
        return None

    def _ask_to_leave(self, process: ReplicaProcess) -> float:
        """When the replica must be gone. One that is still starting has nothing to lose and goes at once."""
        if self.figures.ready_s is None:
            return time.monotonic()
        process.send("stop", drain_seconds=self._drain_seconds)
        return time.monotonic() + self._drain_seconds + _LEAVE_S

    def _left_by_itself(self, process: ReplicaProcess) -> None:
        code = process.wait()
        if not self.figures.said_bye and self.figures.failure is None:  # after it, everything is published
            self.figures.failure, self.figures.engine_failed = _how_it_left(code), True

    def _next_message(self, process: ReplicaProcess) -> dict[str, Any]:
        try:
            return process.events.get(timeout=_TICK_S)
        except queue.Empty:
            return {"kind": "tick"}

    def _handle(self, process: ReplicaProcess, message: dict[str, Any]) -> None:
        kind, figures = message["kind"], self.figures
        self._deadlines.sign(kind)
        if kind == "ask":
            shard, again = (None if self._stop.asked else self._next_shard()) or (None, False)
            process.send("shard", shard=shard, again=again)
        elif kind == "ready":
            figures.engine, figures.ready_s = message["engine"], message["at"] - process.started
            self._started()
        elif kind == "fed":
            figures.in_flight.update(message["rows"])
            figures.first_fed = figures.first_fed or time.monotonic()
        elif kind == "ended":
            figures.in_flight.difference_update(message["rows"])
            figures.answered += len(message["rows"])
            figures.last_ended = time.monotonic()
            self._ended(message["rows"])
        elif kind == "progress":
            figures.last = message
        elif kind == "note":
            figures.notes.append(message["text"])
            logger.warning("Attempt %d: %s.", figures.number, message["text"])
        elif kind == "committed":
            self._committed(Commit.model_validate(message["commit"]))
        elif kind == "failed":
            figures.failure, figures.engine_failed = message["error"], message["engine"]
        elif kind == "bye":
            figures.said_bye, figures.stopped = True, message["stopped"]


def _how_it_left(code: int) -> str:
    if code < 0:
        return f"the replica was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"the replica left with exit code {code}"


class StopSignal:
    """Whether the run was asked to stop. Safe to set in a signal handler."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    @property
    def asked(self) -> bool:
        """Stop feeding, let running requests finish within the drain time."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask."""
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until the stop is asked; whether it was."""
        return self._asked.wait(seconds)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C stop the run in order; a second one ends at once. Only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handler(number: int, frame: Any) -> None:
            self.ask()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = {name: signal.signal(name, handler) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for name, old in before.items():
                signal.signal(name, old)
