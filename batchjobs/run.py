"""A run: life after life of a replica until every shard is committed, or nothing more can be done.

What is decided between two lives, from cause to remedy, is here; what happens within one is the dispatcher's.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from batchjobs.attempts import next_number
from batchjobs.causes import MEMORY, Cause, cause_of, kernel_oom_kills
from batchjobs.checkpoint import Commit
from batchjobs.deadlines import Deadlines
from batchjobs.dispatcher import Dispatcher, StopSignal
from batchjobs.figures import AttemptFigures, RunFigures
from batchjobs.leftovers import mark_of, remove_marked
from batchjobs.life import Life
from batchjobs.measured import remember_measured
from batchjobs.prepared import PreparedJob
from batchjobs.process import ReplicaProcess
from batchjobs.profiles import ProfileStore
from batchjobs.progress import Reporter, progress_of
from batchjobs.remedies import Remedy, Settings, Situation, remedy_for
from batchjobs.sizing import lengthened, lines, merged
from batchjobs.suspects import Suspects
from schemas.records import ErrorCode

logger = logging.getLogger("batchjobs")

_SUSPICIOUS = frozenset({Cause.ENGINE_DIED, Cause.DEVICE_ASSERT, Cause.HANG})


def run(prepared: PreparedJob, reporter: Reporter) -> RunFigures:
    """Run what is left; commits appear as shards finish. Holds the lock that `prepare` took."""
    if prepared.stored is not None or not prepared.left:
        return RunFigures()
    return Run(prepared, reporter).go()


class Run:
    """The lives of one run, and what it has learnt from their ends."""

    def __init__(self, prepared: PreparedJob, reporter: Reporter) -> None:
        self._prepared, self._reporter = prepared, reporter
        self._figures = RunFigures()
        self._stop = StopSignal()
        self._profiles = ProfileStore(prepared.resolved, prepared.plan)
        self._settings, why = self._profiles.start_with()
        self._last_reason: str | None = None
        if why is not None:
            logger.warning("Settings are not the job's own: %s.", why)
        forgiven = ErrorCode.ENGINE_CRASH in prepared.retry
        known = {row: words for attempt in prepared.attempts for row, words in attempt.quarantined.items()}
        self._suspects = Suspects({} if forgiven else known)
        self._deaths: dict[Cause, int] = {}
        self._without_progress = 0

    def go(self) -> RunFigures:
        """Until every shard is committed, the run is stopped, or it cannot go on."""
        for line in lines(self._prepared.sizing):
            self._reporter.log(line)
        try:
            with self._stop.on_signals():
                while self._live_once():
                    pass
        except OSError as problem:  # the storage, the log's folder, engine.python, leftovers that do not end
            self._figures.failure = str(problem)
        if not self._left():
            self._profiles.remember(self._settings, self._last_reason)
        remember_measured(self._prepared.resolved, self._prepared.plan, self._figures, self._in_force())
        return self._figures

    def _live_once(self) -> bool:
        """One life; whether there is another one to come."""
        figures = AttemptFigures(next_number(self._prepared.attempts))
        self._figures.attempts.append(figures)
        committed = len(self._figures.commits)
        life = Life(self._prepared, figures, self._settings, self._suspects)
        before = kernel_oom_kills()
        with life.log_folder():
            self._dispatch(life, figures)
            figures.oom_kills = kernel_oom_kills() - before
            cause = cause_of(figures, life.log_tail())
            progress = figures.answered > 0 or len(self._figures.commits) > committed
            remedy = self._decide(cause, figures, life.log_tail(), progress)
            life.close(cause, remedy)
        return remedy is not None and not self._pause(remedy)

    def _dispatch(self, life: Life, figures: AttemptFigures) -> None:
        def say(process: ReplicaProcess) -> None:
            for line in process.important_lines():
                self._reporter.log(line)
            now = progress_of(self._figures, self._prepared.plan, self._prepared.earlier, self._prepared.job.cost)
            self._reporter.progress(now)
            life.heartbeat(now)

        spec = self._prepared.job.run
        dispatcher = Dispatcher(
            figures, self._left(), Deadlines(spec), self._commit, self._suspects.finished, say, self._stop,
            spec.drain_seconds,
        )  # fmt: skip
        dispatcher.run(life.start())
        remove_marked(mark_of(self._prepared.store.url))

    def _commit(self, commit: Commit) -> None:
        self._figures.commits.append(commit)

    def _left(self) -> list[int]:
        done = {commit.shard for commit in self._figures.commits}
        return [shard for shard in self._prepared.left if shard not in done]

    def _decide(self, cause: Cause, figures: AttemptFigures, tail: list[str], progress: bool) -> Remedy | None:
        """What the next life does otherwise; None if there is none. Why, if that is a failure, is in the figures."""
        if cause in (Cause.DONE, Cause.STOPPED) or self._stop.asked:
            return None
        assert figures.failure is not None
        if cause is Cause.FAILED:
            return self._give_up(figures.failure)
        self._without_progress = 0 if progress else self._without_progress + 1
        self._deaths[cause] = 1 if progress else self._deaths.get(cause, 0) + 1
        if cause in _SUSPICIOUS:
            self._suspects.died(figures.in_flight, figures.failure)
            if self._suspects.engine_is_broken:
                return self._give_up(f"the engine dies on row after row, so it is the engine: {figures.failure}")
        if cause is not Cause.CONTEXT_TOO_SHORT and self._without_progress >= self._prepared.job.run.max_restarts:
            return self._give_up(f"{figures.failure} (attempt {figures.number}; run.max_restarts is reached)")
        return self._remedy(cause, figures, "\n".join([figures.failure, *tail]))

    def _remedy(self, cause: Cause, figures: AttemptFigures, words: str) -> Remedy | None:
        engine: dict[str, Any] = figures.engine or self._figures.engine
        situation = Situation(self._prepared.job, self._in_force(), engine, words, self._deaths[cause])
        remedy = remedy_for(cause, situation)
        if remedy is None and cause in MEMORY | {Cause.START_FAILED, Cause.START_TIMEOUT}:
            return self._give_up(f"{cause}: {figures.failure}, and there is no setting left to try")
        remedy = remedy or Remedy({}, self._isolation())
        if cause is Cause.CONTEXT_TOO_SHORT:  # our own choice, no limit of the machine: nothing to be remembered
            self._prepared.sizing = lengthened(self._prepared.sizing, remedy.settings["max_model_len"], words)
        elif remedy.settings:
            self._settings, self._last_reason = {**self._settings, **remedy.settings}, f"{cause}: {remedy.reason}"
        logger.warning("Attempt %d ended (%s: %s). Next: %s.", figures.number, cause, figures.failure, remedy.reason)
        return remedy

    def _in_force(self) -> Settings:
        return merged(self._prepared.sizing, self._settings)

    def _isolation(self) -> str:
        groups = self._suspects.groups()
        return f"{sum(map(len, groups))} suspect rows run in {len(groups)} groups first" if groups else "go on"

    def _give_up(self, why: str) -> Remedy | None:
        self._figures.failure = why
        return None

    def _pause(self, remedy: Remedy) -> bool:
        """Wait, if the remedy says so; whether the run was stopped meanwhile."""
        until = time.monotonic() + remedy.wait_s
        return self._stop.wait(max(0.0, until - time.monotonic())) if remedy.wait_s else self._stop.asked
