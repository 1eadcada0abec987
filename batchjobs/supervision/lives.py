"""One replica of a run: life after life of its process, until no shard is left for it or it cannot go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from batchjobs.accounts.figures import AttemptFigures, RunFigures
from batchjobs.settings.devices import Placement
from batchjobs.settings.in_force import Settings
from batchjobs.storage.attempts import next_number
from batchjobs.storage.best_effort import BestEffort
from batchjobs.storage.checkpoint import Commit
from batchjobs.supervision.causes import Cause, cause_of, kernel_oom_kills
from batchjobs.supervision.deadlines import Deadlines
from batchjobs.supervision.dispatcher import Dispatcher, StopSignal
from batchjobs.supervision.experience import Consequence, Experience
from batchjobs.supervision.life import Life
from batchjobs.supervision.limit_watch import LimitWatch
from batchjobs.supervision.pool import ShardPool
from batchjobs.supervision.prepared import PreparedJob
from batchjobs.supervision.process import ReplicaProcess

logger = logging.getLogger("batchjobs")


@dataclass
class Shared:
    """What the replicas of a run have in common."""

    prepared: PreparedJob
    figures: RunFigures
    pool: ShardPool
    experience: Experience
    stop: StopSignal
    limits: LimitWatch
    tick: Callable[[list[str]], None]  # takes important lines of a replica's log; called about twice a second
    best_effort: BestEffort = field(default_factory=BestEffort)
    # One engine of a host starts at a time: compile caches and the profiling of memory would get in each other's way.
    starts: threading.Lock = field(default_factory=threading.Lock)
    counting: threading.Lock = field(default_factory=threading.Lock)


class Replica:
    """The lives of one replica."""

    def __init__(self, number: int, placement: Placement, shared: Shared) -> None:
        self.number, self._placement, self._shared = number, placement, shared
        self.failure: str | None = None  # why it lives no more, if it did not end well

    def live(self) -> None:
        """Life after life. A failure is kept; one that is for all replicas asks them to stop."""
        try:
            while self._live_once():
                pass
        except OSError as problem:  # the storage, the log's folder, engine.python, leftovers that do not end
            self._give_up(Consequence(failure=str(problem), is_for_all=True))

    def _live_once(self) -> bool:
        """One life; whether there is another one to come."""
        with self._turn_to_start() as started:
            if self._shared.stop.asked or not self._shared.pool.has_any_for(self.number):
                return False
            if not self._shared.limits.may_start():
                return False
            return self._live_on(started)

    def _live_on(self, started: Callable[[], None]) -> bool:
        shared = self._shared
        figures = self._new_attempt()
        learnt = shared.experience.settings
        life = Life(shared.prepared, figures, learnt, shared.experience.suspects, self._placement, shared.best_effort)
        before = kernel_oom_kills()
        with life.log_folder():
            self._dispatch(life, figures, started)
            started()  # a start that failed keeps nobody waiting, least of all while this replica pauses
            figures.oom_kills = kernel_oom_kills() - before
            tail = life.log_tail()
            cause = cause_of(figures, tail)
            consequence = self._consequence(figures, cause, life.settings, tail)
            shared.pool.ended(self.number, self._shards_under_suspicion())
            life.close(cause, consequence.remedy)
        with shared.counting:
            shared.prepared.lengths.merge(figures.last.get("lengths", {}))
        if consequence.remedy is None:
            self._give_up(consequence)
            return False
        return not self._pause(consequence.remedy.wait_s)

    def _consequence(self, figures: AttemptFigures, cause: Cause, settings: Settings, tail: list[str]) -> Consequence:
        stopped = self._shared.stop.asked
        return Consequence() if stopped else self._shared.experience.after(figures, cause, settings, tail)

    def _new_attempt(self) -> AttemptFigures:
        with self._shared.counting:
            attempts = self._shared.figures.attempts
            number = max(next_number(self._shared.prepared.attempts), *(a.number + 1 for a in attempts), 1)
            attempts.append(AttemptFigures(number, self.number))
            return attempts[-1]

    def _dispatch(self, life: Life, figures: AttemptFigures, started: Callable[[], None]) -> None:
        shared, spec = self._shared, self._shared.prepared.job.run

        def tick(process: ReplicaProcess) -> None:
            life.heartbeat()
            shared.tick(process.important_lines())

        def commit(commit: Commit) -> None:
            figures.committed += 1
            shared.figures.commits.append(commit)
            shared.pool.committed(self.number, commit.shard)

        Dispatcher(
            figures, lambda: shared.pool.take(self.number), Deadlines(spec), commit,
            shared.experience.suspects.finished, started, tick, shared.stop, spec.drain_seconds,
        ).run(life.start())  # fmt: skip

    @contextmanager
    def _turn_to_start(self) -> Iterator[Callable[[], None]]:
        """Waits until no other replica is starting; what it yields is called when this one has started, or ends."""
        while not self._shared.starts.acquire(timeout=0.5):
            if self._shared.stop.asked:
                yield lambda: None
                return
        is_ours = True

        def started() -> None:
            nonlocal is_ours
            if is_ours:
                is_ours = False
                self._shared.starts.release()

        try:
            yield started
        finally:
            started()

    def _shards_under_suspicion(self) -> set[int]:
        plan, suspects = self._shared.prepared.plan, self._shared.experience.suspects
        return {plan.shard_of(row) for group in suspects.groups() for row in group}

    def _give_up(self, consequence: Consequence) -> None:
        self.failure = consequence.failure
        if consequence.failure is not None:
            logger.warning("Replica %d is given up: %s.", self.number, consequence.failure)
        self._shared.pool.gave_up(self.number)
        if consequence.is_for_all:
            self._shared.figures.failure = consequence.failure
            self._shared.stop.ask()

    def _pause(self, seconds: float) -> bool:
        """Wait, if the remedy says so and there is time; whether the run was stopped meanwhile."""
        seconds = self._shared.limits.pause(seconds)
        until = time.monotonic() + seconds
        return self._shared.stop.wait(max(0.0, until - time.monotonic())) if seconds else self._shared.stop.asked
