"""Between two lives: from the cause of a death to what the next life does otherwise, or to the end.

One for a run, shared by its replicas: what one has learnt, all use. Safe to use from several threads.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from batchjobs.accounts.figures import AttemptFigures
from batchjobs.settings.in_force import Settings
from batchjobs.settings.profiles import ProfileStore
from batchjobs.settings.sizing import lengthened, merged
from batchjobs.supervision.causes import MEMORY, Cause
from batchjobs.supervision.prepared import PreparedJob
from batchjobs.supervision.remedies import Remedy, Situation, remedy_for
from batchjobs.supervision.suspects import Suspects
from schemas.records import ErrorCode

logger = logging.getLogger("batchjobs")

_SUSPICIOUS = frozenset({Cause.ENGINE_DIED, Cause.DEVICE_ASSERT, Cause.HANG})


@dataclass(frozen=True)
class Consequence:
    """What follows from the end of a life."""

    remedy: Remedy | None = None  # None: this replica lives no more
    failure: str | None = None  # why, if that is a failure
    is_for_all: bool = False  # no other replica will do better


class Experience:
    """What the replicas of a run have learnt from their deaths."""

    def __init__(self, prepared: PreparedJob) -> None:
        self._prepared = prepared
        self._profiles = ProfileStore(prepared.resolved, prepared.plan)
        self.settings, why = self._profiles.start_with()
        if why is not None:
            logger.warning("Settings are not the job's own: %s.", why)
        self._last_reason: str | None = None
        forgiven = ErrorCode.ENGINE_CRASH in prepared.retry
        known = {row: words for attempt in prepared.attempts for row, words in attempt.quarantined.items()}
        self.suspects = Suspects({} if forgiven else known)
        self._engine: dict[str, Any] = {}  # of the latest life that started one
        self._deaths: Counter[tuple[int, Cause]] = Counter()  # by replica, since it made progress
        self._without_progress: Counter[int] = Counter()  # lives of each replica in a row
        self._lock = threading.RLock()

    def settings_in_force(self) -> Settings:
        """What goes over the job's own settings: what was decided before the start, with what deaths have taught."""
        return merged(self._prepared.sizing, self.settings)

    def remember(self) -> None:
        """Every shard is committed: what worked is for tomorrow."""
        self._profiles.remember(self.settings, self._last_reason)

    def after(self, figures: AttemptFigures, cause: Cause, settings: Settings, tail: list[str]) -> Consequence:
        """What follows from this end of a life with these settings over the job's own."""
        if cause in (Cause.DONE, Cause.STOPPED):
            return Consequence()
        assert figures.failure is not None
        if cause is Cause.FAILED:
            return Consequence(failure=figures.failure, is_for_all=True)
        with self._lock:
            return self._after_death(figures, cause, settings, tail)

    def _after_death(self, figures: AttemptFigures, cause: Cause, settings: Settings, tail: list[str]) -> Consequence:
        replica, failure = figures.replica, figures.failure or ""
        progress = figures.answered > 0 or figures.committed > 0
        self._without_progress[replica] = 0 if progress else self._without_progress[replica] + 1
        self._deaths[replica, cause] = 1 if progress else self._deaths[replica, cause] + 1
        if cause in _SUSPICIOUS:
            self.suspects.died(figures.in_flight, failure)
            if self.suspects.engine_is_broken:
                return Consequence(None, f"the engine dies on row after row, so it is the engine: {failure}", True)
        in_vain = self._without_progress[replica] >= self._prepared.job.run.max_restarts
        if in_vain and cause is not Cause.CONTEXT_TOO_SHORT:
            return Consequence(failure=f"{failure} (attempt {figures.number}; run.max_restarts is reached)")
        words = "\n".join([failure, *tail])
        self._engine = figures.engine or self._engine
        situation = Situation(self._prepared.job, settings, self._engine, words, self._deaths[replica, cause])
        remedy = remedy_for(cause, situation)
        if remedy is None and cause in MEMORY | {Cause.START_FAILED, Cause.START_TIMEOUT}:
            return Consequence(failure=f"{cause}: {failure}, and there is no setting left to try")
        remedy = remedy or Remedy({}, self._isolation())
        if cause is Cause.CONTEXT_TOO_SHORT:  # our own choice, no limit of the machine: nothing to be remembered
            sizing = self._prepared.sizing
            self._prepared.sizing = lengthened(sizing, remedy.settings["max_model_len"], words)
        elif remedy.settings:
            self.settings = {**self.settings, **remedy.settings}
            self._last_reason = f"{cause}: {remedy.reason}"
        logger.warning("Attempt %d ended (%s: %s). Next: %s.", figures.number, cause, failure, remedy.reason)
        return Consequence(remedy)

    def _isolation(self) -> str:
        groups = self.suspects.groups()
        return f"{sum(map(len, groups))} suspect rows run in {len(groups)} groups first" if groups else "go on"
