"""A run waits until the devices of its replicas are free, and says who holds them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from batchjobs.accounts.units import clock, duration
from batchjobs.errors import DeviceBusy
from batchjobs.settings.devices import OneDevice, Placement, gpu_placements, named_devices
from batchjobs.storage.best_effort import BestEffort
from batchjobs.storage.output import WAITING
from batchjobs.supervision.device_lock import Busy, DeviceLocks, record_of, take_groups
from batchjobs.supervision.device_users import warn_of_others
from batchjobs.supervision.dispatcher import StopSignal
from batchjobs.supervision.prepared import PreparedJob
from schemas.deadline import parse_duration
from schemas.job import JobSpec

_LOOK_S = 1.0
_AT_ONCE_S = 2.0  # what a killed job's replica may take to notice and die is no waiting
_REMIND_S = 300.0


class DeviceWait:
    """Takes the devices of a run. `look` is called while it waits and returns lines for people; it may ask for the
    stop."""

    def __init__(
        self,
        prepared: PreparedJob,
        stop: StopSignal,
        tell: Callable[[list[str]], None],
        look: Callable[[], list[str]],
        best_effort: BestEffort,
    ) -> None:
        self._prepared, self._stop, self._tell, self._look = prepared, stop, tell, look
        self._best_effort = best_effort
        self._longest = parse_duration(prepared.job.run.device_wait, may_be_zero=True).total_seconds()
        self._began = time.monotonic()
        self.waited_s = 0.0  # so far, because something was in the way
        self._told: tuple[str, float] = ("", 0.0)  # who was in the way, and when that was told

    def take(self, places: list[Placement]) -> list[Placement]:
        """Where the replicas run, in place of `places`: `prepared.devices` has it locked, unless the stop was asked.

        Raises DeviceBusy when `run.device_wait` is over.
        """
        candidates, groups, count = _wanted(self._prepared.resolved, places)
        if not groups:
            return places
        try:
            while not self._stop.asked:
                me = record_of(self._prepared.job.name, self._prepared.job.output.path)
                chosen, got = take_groups(groups, count, me)
                if isinstance(got, DeviceLocks):
                    self._prepared.devices = got
                    warn_of_others([device for number in chosen for device in groups[number]])
                    return [candidates[number] for number in chosen] if candidates else places
                self._wait(got)
            return places
        finally:
            if self._told[0]:
                with self._best_effort.write():
                    self._prepared.store.delete([WAITING])

    def _wait(self, busy: Busy) -> None:
        if self.waited_s >= max(self._longest, _AT_ONCE_S):
            raise DeviceBusy(_refusal(busy, self._longest))
        if self.waited_s >= _AT_ONCE_S:
            self._say(busy)
        self._tell(self._look())
        self._stop.wait(_LOOK_S)
        self.waited_s = time.monotonic() - self._began

    def _say(self, busy: Busy) -> None:
        """To whoever watches, at once and from time to time; to `batchjobs status`, when it has changed."""
        now = time.monotonic()
        if busy.text == self._told[0] and now < self._told[1] + _REMIND_S:
            return
        until = datetime.now(UTC) + timedelta(seconds=self._longest - self.waited_s)
        text = f"{busy.text}. Waiting until {clock(until, datetime.now(UTC))} at most (run.device_wait)."
        self._tell([text])
        if busy.text != self._told[0]:
            plan = self._prepared.plan
            known = {"text": text, "rows": plan.rows, "shards": len(plan.shards)}
            with self._best_effort.write():
                self._prepared.store.publish(WAITING, json.dumps(known).encode(), replace=True)
        self._told = busy.text, now


def _wanted(job: JobSpec, places: list[Placement]) -> tuple[list[Placement], Sequence[Sequence[OneDevice]], int]:
    """Where replicas could run, what each of these places needs, and how many of them are wanted.

    What the user has named is one group: all of it is needed, wherever the replicas run.
    """
    named = named_devices(job)
    if named is not None:
        return [], [named] if named else [], 1
    if not places[0].gpus:
        return [], [], 0
    candidates = gpu_placements(job)
    if len(candidates) < len(places):  # one was lost since it was planned; its engine will say so
        candidates = places
    return candidates, [place.gpus for place in candidates], len(places)


def _refusal(busy: Busy, longest_s: float) -> str:
    """What is the matter, and the next command."""
    waited = f" and did not become free within {duration(longest_s)} (run.device_wait)" if longest_s else ""
    output = (busy.holder or {}).get("output")
    look = f" See how far it is: batchjobs status {output}." if output and not busy.is_dead else ""
    return (
        f"{busy.text}{waited}. Nothing was changed.{look} Run the same command again when it is free, or with a longer "
        "run.device_wait."
    )
