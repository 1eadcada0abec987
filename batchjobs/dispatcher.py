"""The life of a job's replica: start it, hand out shards, watch it, stop it. Never touches row data."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from batchjobs.checkpoint import Commit
from batchjobs.figures import RunFigures
from batchjobs.process import ReplicaProcess
from batchjobs.progress import Progress, Reporter

_TICK_S = 0.5


class Dispatcher:
    """Runs the shards that are left through one replica."""

    def __init__(
        self,
        start: Callable[[], ReplicaProcess],
        shards: list[int],
        reporter: Reporter,
        progress: Callable[[RunFigures], Progress],
        heartbeat: Callable[[RunFigures, Progress], None],
        drain_seconds: float,
    ) -> None:
        self._start, self._left, self._reporter = start, iter(shards), reporter
        self._progress, self._heartbeat, self._drain_seconds = progress, heartbeat, drain_seconds
        self._stop_asked = threading.Event()
        self.figures = RunFigures()

    def stop(self) -> None:
        """Stop feeding, let running requests finish within the drain time. Safe in a signal handler."""
        self._stop_asked.set()

    def run(self) -> RunFigures:
        """Until the replica has left. A failure of the replica is in the figures, with its evidence in the log."""
        process = self._start()
        try:
            self._serve(process)
        finally:
            process.kill()
            self.figures.held_s = process.held_s()
        self._say(process)
        return self.figures

    def _serve(self, process: ReplicaProcess) -> None:
        stopping, next_tick = False, 0.0
        while True:
            if self._stop_asked.is_set() and not stopping:
                stopping = True
                process.send("stop", drain_seconds=self._drain_seconds)
            try:
                message = process.events.get(timeout=_TICK_S)
            except queue.Empty:
                message = {"kind": "tick"}
            if message["kind"] == "end":
                break
            self._handle(process, message)
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + _TICK_S
                self._say(process)
        code = process.wait()
        if code != 0 and self.figures.failure is None:
            self.figures.failure = _cause_of(code)

    def _handle(self, process: ReplicaProcess, message: dict[str, Any]) -> None:
        kind, figures = message["kind"], self.figures
        if kind == "ask":
            process.send("shard", shard=None if self._stop_asked.is_set() else next(self._left, None))
        elif kind == "ready":
            figures.engine, figures.ready_s = message["engine"], process.held_s()
        elif kind == "progress":
            figures.last = message
        elif kind == "committed":
            figures.commits.append(Commit.model_validate(message["commit"]))
        elif kind == "failed":
            figures.failure = message["error"]
        elif kind == "bye":
            figures.stopped = message["stopped"]

    def _say(self, process: ReplicaProcess) -> None:
        self.figures.held_s = process.held_s()
        now = self._progress(self.figures)
        for line in process.important_lines():
            self._reporter.log(line)
        self._reporter.progress(now)
        self._heartbeat(self.figures, now)


def _cause_of(code: int) -> str:
    if code < 0:
        return f"the replica was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"the replica left with exit code {code}"


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop the run in order; a second one kills at once. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: Any) -> None:
        stop()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL if name == signal.SIGTERM else signal.default_int_handler)

    before = {name: signal.signal(name, handler) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, old in before.items():
            signal.signal(name, old)
