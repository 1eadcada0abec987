"""A run: its replicas, side by side, until every shard is committed, it is stopped, or nothing more can be done."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from batchjobs.accounts.figures import RunFigures
from batchjobs.settings.devices import Placement
from batchjobs.settings.measured import remember_measured
from batchjobs.settings.sizing import lines
from batchjobs.storage.best_effort import BestEffort
from batchjobs.storage.output import PROGRESS
from batchjobs.supervision.device_wait import DeviceWait
from batchjobs.supervision.dispatcher import StopSignal
from batchjobs.supervision.experience import Experience
from batchjobs.supervision.limit_watch import LimitWatch
from batchjobs.supervision.limits import outlook
from batchjobs.supervision.lives import Replica, Shared
from batchjobs.supervision.pool import ShardPool
from batchjobs.supervision.prepared import PreparedJob, begin
from batchjobs.supervision.progress import Progress, Reporter, progress_of
from batchjobs.supervision.recording import Recording
from schemas.summary import Timeline

_JOIN_S = 0.2  # between looks at the signals, while other threads do the work
_WRITE_S = 3.0  # between writes of progress.json


def run(prepared: PreparedJob, reporter: Reporter) -> RunFigures:
    """Run what is left; commits appear as shards finish. Holds the lock that `prepare` took.

    Raises DeviceBusy, with nothing changed, if another job holds its GPUs for longer than `run.device_wait`.
    """
    if prepared.stored is not None:
        return RunFigures()
    if not prepared.left:
        begin(prepared)
        return RunFigures()
    return Run(prepared, reporter).go()


class Run:
    """The replicas of one run."""

    def __init__(self, prepared: PreparedJob, reporter: Reporter) -> None:
        self._prepared, self._figures = prepared, RunFigures()
        self._stop = StopSignal()
        self._places = prepared.placements[: len(prepared.left)]  # a replica without a shard would start for nothing
        self._best_effort = best_effort = BestEffort()
        self._watch = _Watch(prepared, self._figures, reporter, best_effort)
        self._limits = LimitWatch(prepared.limits, self._figures, self._stop)
        self._shared = Shared(
            prepared,
            self._figures,
            ShardPool(prepared.left, len(self._places)),
            Experience(prepared),
            self._stop,
            self._limits,
            self._tick,
            best_effort,
        )

    def go(self) -> RunFigures:
        """Until every shard is committed, the run is stopped, or it cannot go on."""
        prepared = self._prepared
        self._watch.tell([*lines(prepared.sizing), *outlook(prepared.limits, prepared.foreseen)])
        with self._stop.on_signals(), self._on_devices() as places:
            begin(prepared)
            replicas = [Replica(number, place, self._shared) for number, place in enumerate(places)]
            while replicas:
                self._side_by_side(replicas)
                replicas = self._to_go_on(replicas)
        self._figures.timeline = self._watch.timeline()
        if not self._left():
            self._shared.experience.remember()
        self._figures.limit = self._limits.outcome(self._watch.latest)
        remember_measured(prepared.resolved, prepared.plan, self._figures, self._shared.experience.settings_in_force())
        return self._figures

    @contextmanager
    def _on_devices(self) -> Iterator[list[Placement]]:
        """Where the replicas run. Other jobs have to leave before, and may come when the engines are gone."""
        prepared = self._prepared
        wait = DeviceWait(prepared, self._stop, self._watch.tell, self._limits.look, self._best_effort)
        try:
            places = wait.take(self._places)
            self._figures.waited_s = wait.waited_s
            yield places
        finally:
            prepared.devices.release()

    def _tick(self, lines: list[str]) -> None:
        """Called by every replica's dispatcher, about twice a second: some lines of its log, and the latest figures."""
        self._watch.tick([*lines, *self._limits.look()])
        if self._watch.latest is not None:
            self._watch.tell(self._limits.warnings(self._watch.latest))

    def _to_go_on(self, replicas: list[Replica]) -> list[Replica]:
        """Who takes over the shards of those that have given up; nobody, if all have, or nothing is left."""
        failures = [replica.failure for replica in replicas if replica.failure is not None]
        if self._stop.asked or not failures or not self._left():
            return []
        well = [replica for replica in replicas if replica.failure is None]
        if not well:
            self._figures.failure = failures[-1]
        return well

    def _left(self) -> set[int]:
        return set(self._prepared.left) - {commit.shard for commit in self._figures.commits}

    def _side_by_side(self, replicas: list[Replica]) -> None:
        if len(replicas) == 1:
            return replicas[0].live()
        bugs: list[BaseException] = []

        def live(replica: Replica) -> None:
            try:
                replica.live()
            except BaseException as bug:
                bugs.append(bug)
                self._stop.ask()

        threads = [
            # Each with the caller's context: Prefect finds its flow run there.
            threading.Thread(target=contextvars.copy_context().run, args=(live, replica), name=f"replica {n}")
            for n, replica in enumerate(replicas)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_JOIN_S)
        if bugs:
            raise bugs[0]
        return None


class _Watch:
    """Tells whoever watches, and `progress.json`, how far the run is. Called by every replica's dispatcher."""

    def __init__(self, prepared: PreparedJob, figures: RunFigures, reporter: Reporter, best_effort: BestEffort) -> None:
        self._prepared, self._figures, self._reporter = prepared, figures, reporter
        self._best_effort, self._recording = best_effort, Recording(figures)
        self.latest: Progress | None = None
        self._next_write = 0.0
        self._lock = threading.Lock()

    def tell(self, lines: list[str]) -> None:
        """Some lines for people."""
        for line in lines:
            self._reporter.log(line)

    def tick(self, lines: list[str]) -> None:
        """Some lines of a replica's log, and the latest figures."""
        with self._lock:
            self.tell(lines)
            self._show()

    def timeline(self) -> Timeline:
        """The whole run over time."""
        return self._recording.timeline()

    def _show(self) -> None:
        prepared = self._prepared
        now = progress_of(self._figures, prepared.plan, prepared.earlier, prepared.limits, prepared.foreseen)
        self.latest = now
        self._recording.look(now.rows_done)
        self._reporter.progress(now)
        if time.monotonic() >= self._next_write:
            self._next_write = time.monotonic() + _WRITE_S
            with self._best_effort.write():
                prepared.store.publish(PROGRESS, now.model_dump_json().encode(), replace=True)
