"""The loop of a replica: feed the engine across shard borders, step it, hand on what it finishes."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from batchjobs.accounts.stopwatch import Stopwatch
from batchjobs.engines.base import Completion, Engine, EngineStats, Request, RequestRejected
from batchjobs.errors import EngineDied
from batchjobs.replica.channel import Sender
from batchjobs.replica.collect import Collector, Ended
from batchjobs.replica.commands import Commands
from batchjobs.replica.concurrency import Concurrency
from batchjobs.replica.prepare import Preparer
from batchjobs.replica.window import OpenShard
from batchjobs.rows.prompts import RowError
from schemas.records import ErrorCode

_PROGRESS_S = 1.0  # seconds between progress messages


class Feeder:
    """Feeds the engine across shard borders, and hands what it finishes to the collector."""

    def __init__(
        self,
        engine: Engine,
        preparer: Preparer,
        collector: Collector,
        commands: Commands,
        events: Sender,
        groups: Mapping[int, int],
        watch: Stopwatch,
    ) -> None:
        self._engine, self._preparer, self._collector = engine, preparer, collector
        self._commands, self._events = commands, events
        self._slots = engine.info.max_num_seqs
        self._concurrency = Concurrency(self._slots)
        self._waiting: deque[tuple[Request, OpenShard]] = deque()
        self._in_flight: dict[int, tuple[Request, OpenShard]] = {}
        self._groups = groups  # suspects of an earlier death: row -> group; a group runs alone
        self._group: int | None = None
        self._aborted: set[int] = set()
        self._all_prepared = False
        self._next_progress = 0.0
        self.watch = watch

    def run(self) -> None:
        """Until every shard is committed, or a stop has drained. Raises what the engine or a thread raised."""
        self._preparer.start()
        self._collector.start()
        try:
            while self._step():
                self._check_threads()
                self.report(only_when_due=True)
            self._collector.finish()
            self._check_threads()
        except BaseException:
            self._collector.finish()  # also when the engine died: what it had answered is not lost
            with suppress(Exception):  # the figures are not worth hiding why it ended
                self.report()
            raise
        self.report()

    def _step(self) -> bool:
        stop_by = self._commands.stop_by
        if stop_by is not None:
            self._preparer.stop()
            self._waiting.clear()
            if not self._in_flight or time.monotonic() > stop_by:
                return False
        else:
            self._feed()
        label = self._label()
        if self._in_flight:
            self._collect(self._answers())
        elif self._all_prepared and not self._waiting:
            return False
        self.watch.lap(label)
        return True

    def _label(self) -> str:
        """What this moment is: every engine-second has one label."""
        if self._commands.stop_by is not None:
            return "draining"
        running = self._unanswered()
        if self._all_prepared and not self._waiting:
            return "tail" if running < self._slots / 2 else "productive"
        return "starved" if running < min(self._slots, self._concurrency.limit) else "productive"

    def _unanswered(self) -> int:
        """How many requests the engine has."""
        return len(self._in_flight)

    def _feed(self) -> None:
        """Fill the backlog. The dispatcher is told the rows first: if the engine dies on one, it is among them."""
        chosen = self._choose()
        if not chosen:
            return
        self.watch.fed()
        self._events.send("fed", rows=[request.row for request, _ in chosen])
        rejected = [ended for request, shard in chosen if (ended := self._submit(request, shard)) is not None]
        self._end(rejected)

    def _choose(self) -> list[tuple[Request, OpenShard]]:
        chosen: list[tuple[Request, OpenShard]] = []
        while len(self._in_flight) + len(chosen) < self._concurrency.limit and (self._waiting or self._take_window()):
            group = self._groups.get(self._waiting[0][0].row)
            if group != self._group:
                if self._in_flight or chosen:
                    break  # suspects run with their own group only
                self._group = group
            chosen.append(self._waiting.popleft())
        return chosen

    def _submit(self, request: Request, shard: OpenShard) -> Ended | None:
        try:
            self._engine.submit(request)
        except RequestRejected as problem:
            return refused(request, problem), request, shard
        except Exception as death:
            raise EngineDied(death) from death
        self._in_flight[request.row] = (request, shard)
        return None

    def _end(self, ended: list[Ended]) -> None:
        if ended:
            self._collector.ended(ended)
            self._events.send("ended", rows=[request.row for _, request, _ in ended])

    def _take_window(self) -> bool:
        """Fill `_waiting` from the next prepared window; waits for it only while the engine has nothing to do."""
        while not self._all_prepared and not self._waiting:
            idle = not self._in_flight
            try:
                window = self._preparer.windows.get(block=idle, timeout=0.2)
            except queue.Empty:
                return False
            if idle:
                self.watch.lap("starved")
            if window is None:
                self._all_prepared = True
            else:
                self._waiting.extend(window)
        return bool(self._waiting)

    def _answers(self) -> list[Completion]:
        """What the engine has answered after some more work."""
        try:
            return self._engine.step()
        except Exception as death:
            raise EngineDied(death) from death

    def _collect(self, done: list[Completion]) -> None:
        if not done:
            return
        self.watch.answered()
        ended: list[Ended] = []
        for completion in done:
            request, shard = self._in_flight.pop(completion.row)
            if completion.finish_reason == "abort" and completion.row not in self._aborted:
                # An engine that is told to leave aborts all it has, as if that were an answer. Once more will tell.
                self._aborted.add(completion.row)
                self._waiting.appendleft((request, shard))
            else:
                ended.append((completion, request, shard))
        self._end(ended)

    def _check_threads(self) -> None:
        if (failure := self._failure_of_a_thread()) is not None:
            raise failure

    def _failure_of_a_thread(self) -> BaseException | None:
        return self._preparer.failure or self._collector.failure

    def _adapt(self, stats: EngineStats, answered: int) -> None:
        slowed = self._concurrency.look(stats, answered)
        if slowed is not None:
            self._events.send("note", text=slowed)

    def report(self, only_when_due: bool = False) -> None:
        """Send the figures so far to the dispatcher, once a second at the most."""
        if only_when_due and time.monotonic() < self._next_progress:
            return
        self._next_progress = time.monotonic() + _PROGRESS_S
        tally, stats = self._collector.tally, self._engine.stats()
        self._adapt(stats, tally.generated)
        self._events.send(
            "progress",
            rows={
                "ok": tally.ok,
                "error": tally.rows - tally.ok,
                "rejected": tally.rejected,
                "deduplicated": tally.deduplicated,
                "open": self._collector.open_rows,
            },
            tokens={"prompt": tally.prompt_tokens, "output": tally.output_tokens, "cached": tally.cached_tokens},
            stats={name: getattr(stats, name) for name in stats.__slots__},
            seconds=self.watch.seconds(),
            safe_seconds=self.watch.safe(),
            latency={name: histogram.bins() for name, histogram in self._collector.latencies.items()},
            lengths=self._collector.lengths.plain(),
            prompt_tokens=self._collector.prompt_tokens.plain(),
            output_tokens=self._collector.output_tokens.plain(),
            order=chosen.model_dump() if (chosen := self._preparer.ordering.chosen) is not None else {},
        )


def refused(request: Request, problem: RequestRejected) -> RowError:
    """The error of a row that the engine would not take."""
    code, tokens = ErrorCode.ENGINE_REJECTED, len(request.token_ids)
    return RowError(request.row, code, str(problem), tokens, request.request_hash)
