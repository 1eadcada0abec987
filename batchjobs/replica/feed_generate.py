"""`feed: generate`: the engine gets one call per shard, and the next shard waits for its end. The baseline to beat."""

from __future__ import annotations

import time
from itertools import takewhile

from batchjobs.engines.base import Completion, EngineStats, Request, RequestRejected
from batchjobs.errors import EngineDied
from batchjobs.replica.collect import Ended
from batchjobs.replica.feed import Feeder, refused
from batchjobs.replica.window import OpenShard


class Interrupted(BaseException):
    """The call is given up. No Exception, so that nobody on the way takes it for a failure of the engine."""


class GenerateFeeder(Feeder):
    """Feeds a shard at a time, or of a shard with suspects one group at a time.

    vLLM gives the answers of a call all together at its end, so what a call has when it is cut off is lost.
    """

    _left = 0  # requests of the call without an answer

    def _choose(self) -> list[tuple[Request, OpenShard]]:
        """The next call: what is left of a shard, or of a group of suspects in it."""
        if not self._waiting and not self._take_window():
            return []
        first = self._call_of(*self._waiting[0])
        chosen = list(takewhile(lambda fed: self._call_of(*fed) == first, self._waiting))
        for _ in chosen:
            self._waiting.popleft()
        return chosen

    def _call_of(self, request: Request, shard: OpenShard) -> tuple[int, int | None]:
        return shard.index, self._groups.get(request.row)

    def _submit(self, request: Request, shard: OpenShard) -> Ended | None:
        """It goes with the call."""
        self._in_flight[request.row] = (request, shard)
        return None

    def _answers(self) -> list[Completion]:
        requests = [request for request, _ in self._in_flight.values()]
        try:
            outcomes = self._engine.generate(requests, self._working)
        except Interrupted:
            return []
        except Exception as death:
            raise EngineDied(death) from death
        self._left = 0
        both = list(zip(requests, outcomes, strict=True))
        self._end([(refused(r, o), *self._in_flight.pop(r.row)) for r, o in both if isinstance(o, RequestRejected)])
        return [outcome for outcome in outcomes if isinstance(outcome, Completion)]

    def _working(self, left: int) -> None:
        """The engine has ended a step of the call: time for a sign of life, and perhaps to give up."""
        self._left = left
        self._take_window()  # not to be fed yet: whether there is more tells `starved` from `tail`
        self.watch.lap(self._label())
        self.report(only_when_due=True)
        stop_by = self._commands.stop_by
        if (stop_by is not None and time.monotonic() > stop_by) or self._failure_of_a_thread() is not None:
            raise Interrupted

    def _unanswered(self) -> int:
        return self._left

    def _adapt(self, stats: EngineStats, answered: int) -> None:
        """A call cannot be made smaller."""
