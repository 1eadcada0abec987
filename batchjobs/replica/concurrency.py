"""How many requests are in the engine at once, and less of them when it has to preempt.

A preempted request loses its KV cache and is computed again: with more running than the cache holds, the engine works
against itself. That is no crash, so no restart is needed: fewer are fed.
"""

from __future__ import annotations

from batchjobs.engines.base import EngineStats

_STORM = 0.05  # preemptions per answered request
_LEAST_ANSWERED = 50  # fewer say nothing
_LOWER = 0.8


class Concurrency:
    """The most requests that may be fed and not answered."""

    def __init__(self, max_num_seqs: int) -> None:
        # Twice the slots: enough for the scheduler to choose from, little enough to be cheap.
        self.limit = 2 * max_num_seqs
        self._answered = self._preemptions = 0  # at the last look

    def look(self, stats: EngineStats, answered: int) -> str | None:
        """Lower the limit in a storm of preemptions; returns what was done, as a sentence, or None."""
        since, preempted = answered - self._answered, (stats.preemptions or 0) - self._preemptions
        if since < _LEAST_ANSWERED:
            return None
        self._answered, self._preemptions = answered, stats.preemptions or 0
        if preempted <= _STORM * since or stats.running <= 1:
            return None
        # What runs is what fits: the backlog waits in our own queue now, where it cannot preempt anybody.
        self.limit = max(1, int(stats.running * _LOWER))
        return f"{preempted} preemptions for {since} answers: at most {self.limit} requests run from now on"
