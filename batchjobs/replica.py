"""One replica: a process with one engine. `python -m batchjobs.replica` is started by the dispatcher only.

Commands come on standard input, one JSON message a line; its end of file kills the process group, engine included.
Events go to the descriptor named on the command line. Everything printed goes to the log.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from typing import Any

import fsspec

from batchjobs.channel import Sender, receive
from batchjobs.checkpoint import Commit
from batchjobs.collect import Collector, Ended
from batchjobs.engines import create_engine
from batchjobs.engines.base import Engine, Request, RequestRejected
from batchjobs.fingerprint import model_id
from batchjobs.predicate import Predicate
from batchjobs.prepare import Preparer
from batchjobs.prompts import Renderer, RowError
from batchjobs.reader import ShardReader
from batchjobs.stopwatch import Stopwatch
from batchjobs.store import open_store
from batchjobs.tokens import load_tokenizer
from batchjobs.window import OpenShard
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.records import ErrorCode

logger = logging.getLogger("batchjobs.replica")

_PROGRESS_S = 1.0  # seconds between progress messages


class Commands(threading.Thread):
    """Reads the dispatcher's messages. When they end, the dispatcher is gone, and so is this group."""

    def __init__(self, events: Sender) -> None:
        super().__init__(name="commands", daemon=True)
        self.stop_by: float | None = None  # monotonic time at which running requests are dropped
        self._events = events
        self._shards: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        # Not sys.stdin: the interpreter waits for its lock at exit, and this thread holds it for ever.
        self._messages = receive(os.fdopen(sys.stdin.fileno(), "rb", closefd=False))

    def first(self) -> dict[str, Any]:
        """The message that says what to do."""
        return next(self._messages)

    def next_shard(self) -> int | None:
        """Ask for a shard; None when there is none left, or the run stops."""
        self._events.send("ask")
        return self._shards.get()

    def run(self) -> None:
        """Serve until end of file."""
        for message in self._messages:
            if message["kind"] == "shard":
                self._shards.put(message["shard"])
            elif message["kind"] == "stop":
                self.stop_by = time.monotonic() + message["drain_seconds"]
                self._shards.put(None)
        os.killpg(0, signal.SIGKILL)


class Replica:
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
            rows={"ok": tally.ok, "rejected": tally.rejected, "errors": tally.errors},
            tokens={"prompt": tally.prompt_tokens, "output": tally.output_tokens, "cached": tally.cached_tokens},
            stats={name: getattr(stats, name) for name in stats.__slots__},
            seconds=self.watch.seconds(),
            latency={name: histogram.bins() for name, histogram in self._collector.latencies.items()},
        )


def build(order: dict[str, Any], commands: Commands, events: Sender) -> tuple[Replica, Engine]:
    """Start the engine and everything around it."""
    job, plan = JobSpec.model_validate(order["job"]), Plan.model_validate_json(order["plan"])
    renderer = Renderer(job, plan.input_schema, plan.as_of, keep_text=job.engine.kind == "echo")
    tokenizer = load_tokenizer(job, plan.as_of)
    engine = create_engine(job)
    info = engine.info
    events.send("ready", engine={name: getattr(info, name) for name in info.__slots__})
    renderer.connect(tokenizer, info.max_model_len, info.vocab_size, model_id(plan.model))
    predicate = Predicate(job.input.filter, plan.input_schema) if job.input.filter is not None else None
    names = dict.fromkeys([*renderer.columns, *plan.kept_columns, *(predicate.columns if predicate else [])])
    fs = fsspec.url_to_fs(_first(job.input.path), **job.input.storage_options)[0]

    def committed(commit: Commit) -> None:
        events.send("committed", commit=commit.model_dump())

    store = open_store(job.output.path, job.output.storage_options)
    collector = Collector(
        store, plan.result_schema, job.output.prefix, plan.fingerprint, order["attempt"], info.max_model_len, committed
    )
    preparer = Preparer(
        commands.next_shard,
        collector.opened,
        plan.shards,
        ShardReader(fs, order["paths"], plan.files, plan.input_schema, list(names)),
        renderer,
        predicate.mask if predicate else None,
        plan.kept_columns,
        job.run.order,
        info.max_num_seqs,
        order["attempt"],
    )
    return Replica(engine, preparer, collector, commands, events), engine


def _first(path: str | list[str]) -> str:
    return path if isinstance(path, str) else path[0]


def main() -> None:
    """The life of a replica; leaves with 0 after `bye`, else with 1 after `failed`."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    events = Sender(int(sys.argv[1]))
    commands = Commands(events)
    order = commands.first()
    commands.start()
    engine = None
    try:
        replica, engine = build(order, commands, events)
        replica.run()
        replica.report()
        events.send("bye", stopped=commands.stop_by is not None)
    except BaseException as failure:
        logger.exception("The replica failed.")
        events.send("failed", error=f"{type(failure).__name__}: {failure}", started=engine is not None)
        sys.exit(1)
    finally:
        if engine is not None:
            engine.close()


if __name__ == "__main__":
    main()
