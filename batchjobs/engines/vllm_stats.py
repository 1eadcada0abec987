"""Figures of a running vLLM engine: added up step by step where vLLM's private hook is, else read from its metrics.

Imports no vLLM: what it is given is vLLM's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from batchjobs.engines.base import EngineStats


class StatRecorder:
    """Adds up what each engine step reports, with the methods of vLLM's `StatLoggerBase`, no stable interface.

    Only this hook sees every step, so only it knows the peak of the KV cache and what preemptions cost.
    """

    def __init__(self, llm: Any) -> None:
        """Hook into the engine of a `vllm.LLM` that keeps statistics (`disable_log_stats=False`)."""
        self._llm = llm
        self.on_step: Callable[[], None] | None = None  # called at the end of each step, if the hook works
        self._stats = EngineStats(kv_cache_usage=0.0, kv_cache_usage_peak=0.0, preemptions=0)
        self._recomputed = 0
        self._caching = bool(llm.llm_engine.vllm_config.cache_config.enable_prefix_caching)
        if self._caching:
            self._stats.prefix_cache_queries = self._stats.prefix_cache_hits = 0
        try:
            llm.llm_engine.logger_manager.stat_loggers.append(self)
            self._works = True
        except AttributeError:
            self._works = False

    def stats(self) -> EngineStats:
        """Figures as of the last step."""
        if not self._works:
            return stats_from_metrics(self._llm.get_metrics())
        # Without a prefix cache vLLM does not say how much of a preempted request is computed again.
        known = self._caching or not self._stats.preemptions
        return dataclasses.replace(self._stats, recomputed_tokens=self._recomputed if known else None)

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        """Called by vLLM at the end of every step; what this raises, the step raises."""
        try:
            if scheduler_stats is not None:
                self._record_scheduler(scheduler_stats)
            if iteration_stats is not None:
                self._stats.preemptions = (self._stats.preemptions or 0) + iteration_stats.num_preempted_reqs
        except (AttributeError, TypeError):  # another vLLM names them otherwise
            self._works = False
        if self.on_step is not None:
            self.on_step()

    def _record_scheduler(self, now: Any) -> None:
        stats = self._stats
        stats.running = now.num_running_reqs
        stats.waiting = now.num_waiting_reqs + now.num_skipped_waiting_reqs
        stats.kv_cache_usage = now.kv_cache_usage
        stats.kv_cache_usage_peak = max(stats.kv_cache_usage_peak or 0.0, now.kv_cache_usage)
        cache = now.prefix_cache_stats
        if self._caching:
            stats.prefix_cache_queries = (stats.prefix_cache_queries or 0) + cache.queries
            stats.prefix_cache_hits = (stats.prefix_cache_hits or 0) + cache.hits
        # A preempted request asks the cache for all its tokens again. Its newest token had not been computed yet. An
        # upper bound: a request preempted in the middle of its prompt had computed less.
        self._recomputed += cache.preempted_queries - cache.preempted_hits - cache.preempted_requests

    def log(self) -> None:
        """Nothing is printed."""

    def log_engine_initialized(self) -> None:
        """Nothing is printed."""

    def record_sleep_state(self, *_: Any) -> None:
        """The engine never sleeps."""

    def record_admission_rejection(self, reason: str) -> None:
        """Only servers refuse for load."""


def stats_from_metrics(metrics: list[Any]) -> EngineStats:
    """The same from `LLM.get_metrics()`, as far as it is there; the peak and recomputed tokens are not."""
    value = {metric.name: metric.value for metric in metrics if hasattr(metric, "value")}
    counters = ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions")
    queries, hits, preemptions = (None if (n := value.get(f"vllm:{name}")) is None else int(n) for name in counters)
    return EngineStats(
        running=int(value.get("vllm:num_requests_running", 0)),
        waiting=int(value.get("vllm:num_requests_waiting", 0)),
        kv_cache_usage=value.get("vllm:kv_cache_usage_perc"),
        prefix_cache_queries=queries,
        prefix_cache_hits=hits,
        preemptions=preemptions,
    )
