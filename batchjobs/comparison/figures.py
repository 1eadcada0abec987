"""Figures of two runs side by side: speed, latency, memory, money, and what became of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from batchjobs.accounts import baseline
from schemas.summary import Change, Summary

Unit = Literal["s", "per s", "usd", "share", "bytes", "tokens", "count"]
Figure = tuple[str, Unit, Callable[[Summary], float | None]]


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


SPEED: list[Figure] = [
    ("requests/s", "per s", lambda s: s.rate.requests_per_s),
    ("output tokens/s", "per s", lambda s: s.rate.output_tokens_per_s),
    (baseline.TOKENS_PER_S, "per s", lambda s: s.rate.total_tokens_per_s),
    ("time to first token, P95", "s", lambda s: s.latency.ttft_s.p95),
    ("time per token, P95", "s", lambda s: s.latency.tpot_s.p95),
]
COST: list[Figure] = [
    (baseline.USD_PER_1K_ROWS, "usd", lambda s: s.cost.usd_per_1k_rows),
    ("per 1M input tokens", "usd", lambda s: s.cost.usd_per_1m_input_tokens),
    ("per 1M output tokens", "usd", lambda s: s.cost.usd_per_1m_output_tokens),
]
PERFORMANCE: list[Figure] = [
    *SPEED[:3],
    ("wall clock of the last run", "s", lambda s: s.seconds.wall),
    ("engine start", "s", lambda s: s.seconds.engine_start),
    ("queue, P50", "s", lambda s: s.latency.queue_s.p50),
    ("queue, P95", "s", lambda s: s.latency.queue_s.p95),
    ("queue, P99", "s", lambda s: s.latency.queue_s.p99),
    ("time to first token, P50", "s", lambda s: s.latency.ttft_s.p50),
    ("time to first token, P95", "s", lambda s: s.latency.ttft_s.p95),
    ("time to first token, P99", "s", lambda s: s.latency.ttft_s.p99),
    ("time per token, P50", "s", lambda s: s.latency.tpot_s.p50),
    ("time per token, P95", "s", lambda s: s.latency.tpot_s.p95),
    ("time per token, P99", "s", lambda s: s.latency.tpot_s.p99),
    ("KV cache tokens", "tokens", lambda s: s.engine.kv_cache_tokens),
    ("peak KV use", "share", lambda s: s.engine.kv_cache_usage_peak),
    ("prefix-cache hit rate", "share", lambda s: s.engine.prefix_cache_hit_rate),
    ("preemptions", "count", lambda s: s.engine.preemptions),
    ("peak memory of the host", "bytes", lambda s: s.memory.host_peak_bytes),
    ("peak memory of the device", "bytes", lambda s: s.memory.device_peak_bytes),
]
ROWS: list[Figure] = [
    (baseline.FAILED, "share", lambda s: _share(s.rows.error, s.rows.total)),
    (baseline.TRUNCATED, "share", lambda s: _share(s.health.truncated, s.health.answers)),
    (baseline.EMPTY, "share", lambda s: _share(s.health.empty, s.health.answers)),
    ("invalid JSON", "share", lambda s: _share(s.health.invalid, s.health.answers)),
    (baseline.REPETITIVE, "share", lambda s: _share(s.health.repetitive, s.health.answers)),
    (baseline.MEAN_OUTPUT_TOKENS, "tokens", lambda s: s.lengths.output_tokens.mean),
]


def side_by_side(figures: list[Figure], before: Summary, now: Summary) -> list[Change]:
    """These figures of both; what neither knows is left out."""
    changes = (Change(figure=name, unit=unit, before=of(before), now=of(now)) for name, unit, of in figures)
    return [change for change in changes if change.before is not None or change.now is not None]
