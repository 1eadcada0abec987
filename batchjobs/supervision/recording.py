"""The run over time, from the progress messages of its replicas."""

from __future__ import annotations

import time
from typing import Any

from batchjobs.accounts.figures import AttemptFigures, RunFigures
from batchjobs.accounts.timeline import TimelineRecorder
from schemas.summary import Timeline


class Recording:
    """Looks at what each attempt has said last. What lies between two messages of one is spread evenly over them."""

    def __init__(self, figures: RunFigures) -> None:
        self._figures, self._recorder, self._made = figures, TimelineRecorder(), time.monotonic()
        self._seen: dict[int, dict[str, Any]] = {}  # by attempt: the message that was looked at last

    @property
    def _began(self) -> float:
        """When it began to work: the picture has no room for hours of waiting for a device."""
        return self._made + self._figures.waited_s

    def look(self, rows_done: int) -> None:
        """Record what is new."""
        for attempt in list(self._figures.attempts):
            if attempt.last:
                self._record(attempt, attempt.last)
        self._recorder.done(time.monotonic() - self._began, rows_done)

    def _record(self, attempt: AttemptFigures, now: dict[str, Any]) -> None:
        assert attempt.ready_s is not None
        before = self._seen.get(attempt.number, {"at": attempt.started + attempt.ready_s})
        if now["at"] <= before["at"]:
            return
        self._seen[attempt.number] = now
        stats, earlier = now["stats"], before.get("stats", {})
        kv_cache = [each["kv_cache_usage"] for each in (earlier, stats) if each.get("kv_cache_usage") is not None]
        self._recorder.interval(
            attempt.replica,
            before["at"] - self._began,
            now["at"] - self._began,
            (earlier.get("running", 0) + stats["running"]) / 2,
            (earlier.get("waiting", 0) + stats["waiting"]) / 2,
            sum(kv_cache) / len(kv_cache) if kv_cache else None,
            *(now["tokens"][kind] - before.get("tokens", {}).get(kind, 0) for kind in ("prompt", "output")),
        )

    def timeline(self) -> Timeline:
        """The run so far."""
        return self._recorder.timeline()
