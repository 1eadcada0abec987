"""What a run has seen so far, attempt by attempt: the raw material of progress and summary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from batchjobs.accounts.histogram import Histogram, Lengths
from batchjobs.storage.checkpoint import Commit
from schemas.summary import Memory, Timeline


@dataclass
class AttemptFigures:
    """One life of a replica, as the dispatcher saw it."""

    number: int = 0
    replica: int = 0
    started: float = 0.0  # monotonic
    engine: dict[str, Any] = field(default_factory=dict)  # EngineInfo, once it has started
    ready_s: float | None = None  # seconds from process start to a ready engine
    held_s: float = 0.0  # seconds from process start to exit
    last: dict[str, Any] = field(default_factory=dict)  # the latest progress message; `at`: monotonic
    in_flight: set[int] = field(default_factory=set)  # rows fed and not ended
    answered: int = 0  # rows that the engine has answered
    committed: int = 0  # shards
    first_fed: float | None = None  # monotonic
    last_ended: float | None = None  # monotonic
    is_over: bool = False
    said_bye: bool = False  # it did all that it was asked to
    stopped: bool = False  # it left because it was asked to
    failure: str | None = None  # a sentence, if it did not leave in order
    engine_failed: bool = False  # the engine's failure, which another life may survive
    notes: list[str] = field(default_factory=list)  # what the replica changed by itself
    memory: Memory = field(default_factory=Memory)  # the most that it held
    oom_kills: int = 0  # of the kernel, while it lived


@dataclass(frozen=True)
class LimitReached:
    """A limit of the job that ended a run, each as words for people."""

    what: str  # "Stopped for run.deadline (06:30)"
    rest: str  # "the rest will take about 2 h 10 min"
    then: str  # how to go on


@dataclass
class RunFigures:
    """All attempts of one run."""

    commits: list[Commit] = field(default_factory=list)
    attempts: list[AttemptFigures] = field(default_factory=list)
    waited_s: float = 0.0  # for devices that another job held
    failure: str | None = None  # why the run as a whole could not go on
    limit: LimitReached | None = None  # why it went no further, though it could have
    timeline: Timeline = field(default_factory=Timeline)  # once the run has ended

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was asked to."""
        return bool(self.attempts) and self.attempts[-1].stopped

    @property
    def held_s(self) -> float:
        """Seconds that engines were held."""
        return sum(attempt.held_s for attempt in self.attempts)

    @property
    def start_s(self) -> float:
        """Seconds that engines took to start, those that never did included; of the replica that took longest."""
        return self._longest((a, a.held_s if a.ready_s is None else a.ready_s) for a in self.attempts)

    @property
    def generating_s(self) -> float:
        """Seconds in which some engine had requests, from the first fed to the last ended of each attempt."""
        spans = sorted((a.first_fed, a.last_ended) for a in self.attempts if a.first_fed and a.last_ended)
        total, reached = 0.0, 0.0
        for begin, end in spans:
            total += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return total

    @property
    def alive(self) -> list[AttemptFigures]:
        """Attempts that are not over."""
        return [attempt for attempt in self.attempts if not attempt.is_over]

    @property
    def is_ready(self) -> bool:
        """Whether an engine has started that is still there."""
        return any(attempt.ready_s is not None for attempt in self.alive)

    @property
    def engine(self) -> dict[str, Any]:
        """The engine of the latest attempt that started one."""
        return next((attempt.engine for attempt in reversed(self.attempts) if attempt.engine), {})

    def rows(self) -> dict[str, int]:
        """Results of this run's attempts: `ok`, `error`; and of both `rejected`, which never reached the engine, and
        `deduplicated`, which got the answer of an identical row."""
        told = [attempt.last.get("rows", {}) for attempt in self.attempts]
        return {name: sum(rows.get(name, 0) for rows in told) for name in ("ok", "error", "rejected", "deduplicated")}

    def tokens(self) -> dict[str, int]:
        """Tokens of this run: prompt, output, cached."""
        return _summed(attempt.last.get("tokens", {}) for attempt in self.attempts)

    def lap(self, label: str) -> float:
        """Seconds of an engine's loop with this label; of the replica that has most of them."""
        return self._longest((a, a.last.get("seconds", {}).get(label, 0.0)) for a in self.attempts)

    def _longest(self, seconds: Iterable[tuple[AttemptFigures, float]]) -> float:
        """Attempts of one replica follow each other, replicas run side by side: what that means for a wall clock."""
        total: dict[int, float] = {}
        for attempt, each in seconds:
            total[attempt.replica] = total.get(attempt.replica, 0.0) + each
        return max(total.values(), default=0.0)

    def order(self) -> dict[str, str]:
        """The order in which rows were fed, and why; empty while none was."""
        told = [attempt.last["order"] for attempt in self.attempts if attempt.last.get("order")]
        return told[-1] if told else {}

    def latency(self) -> dict[str, Histogram]:
        """Latencies of all attempts."""
        merged: dict[str, Histogram] = {}
        for attempt in self.attempts:
            for name, bins in attempt.last.get("latency", {}).items():
                merged.setdefault(name, Histogram()).merge(bins)
        return merged

    def lengths(self, name: str) -> Lengths:
        """Lengths in tokens of all attempts' `prompt_tokens` or `output_tokens`."""
        merged = Lengths()
        for attempt in self.attempts:
            if name in attempt.last:
                merged.merge(attempt.last[name])
        return merged

    def memory(self) -> Memory:
        """The most that one attempt held."""
        held = [attempt.memory for attempt in self.attempts]
        return Memory(
            host_peak_bytes=max((m.host_peak_bytes for m in held if m.host_peak_bytes), default=None),
            device_peak_bytes=max((m.device_peak_bytes for m in held if m.device_peak_bytes), default=None),
        )

    def stats(self) -> dict[str, Any]:
        """The engines' own figures: the peak of what is a level, the sum of what is a count; None if not known."""
        told = [attempt.last["stats"] for attempt in self.attempts if "stats" in attempt.last]
        counts = ("prefix_cache_queries", "prefix_cache_hits", "preemptions", "recomputed_tokens")
        return {
            "kv_cache_usage_peak": max(_known(told, "kv_cache_usage_peak"), default=None),
            **{name: sum(_known(told, name)) if _known(told, name) else None for name in counts},
        }


def _known(told: list[dict[str, Any]], name: str) -> list[Any]:
    return [stats[name] for stats in told if stats.get(name) is not None]


def _summed(counts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return total
