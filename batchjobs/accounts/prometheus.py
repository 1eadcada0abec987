"""The numbers of a summary as Prometheus text, for node-exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from schemas.summary import EXIT_CODES, Summary

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_Value = float | int | None


def prometheus_text(summary: Summary) -> bytes:
    """Gauges, because each is how things stand after the last run. What is not known has no line."""
    from prometheus_client import CollectorRegistry, generate_latest  # only where a run ends

    registry = CollectorRegistry()
    gauges = _Gauges(registry, summary.job)
    _add_job(gauges, summary)
    _add_run(gauges, summary)
    return generate_latest(registry)


class _Gauges:
    """Metrics of one job; every one has the label `job`."""

    def __init__(self, registry: CollectorRegistry, job: str) -> None:
        self._registry, self._job = registry, job

    def one(self, name: str, text: str, value: _Value) -> None:
        """A number of its own."""
        self.many(name, text, (), {(): value})

    def by(self, label: str, name: str, text: str, values: Mapping[str, _Value]) -> None:
        """A number for each value of a label."""
        self.many(name, text, (label,), {(key,): value for key, value in values.items()})

    def many(self, name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, _Value]) -> None:
        """A number for each combination (a tuple) of some labels' values."""
        from prometheus_client import Gauge

        known = {key: value for key, value in values.items() if value is not None}
        if known:
            gauge = Gauge(f"batchjobs_{name}", text, ("job", *labels), registry=self._registry)
            for key, value in known.items():
                gauge.labels(self._job, *key).set(value)


def _add_job(g: _Gauges, s: Summary) -> None:
    """What covers the job over all its runs."""
    states = {state: float(state == s.state) for state in EXIT_CODES}
    g.by("state", "job_state", "State of the job after its last run: 1 for the one that it is in.", states)
    g.one("exit_code", "Exit code of the last run.", s.exit_code)
    g.one("rows_planned", "Rows of the dataset, before the filter.", s.rows.planned)
    rows = {"ok": s.rows.ok, "error": s.rows.error, "filtered": s.rows.filtered}
    g.by("state", "rows", "Rows of committed shards, over all runs.", rows)
    g.by("code", "row_errors", "Rows that failed, by error code, over all runs.", s.errors)
    g.by("code", "row_warnings", "Answers that were cut, by the reason, over all runs.", s.warnings)
    shards = {"total": s.shards.total, "committed": s.shards.committed}
    g.by("state", "shards", "Shards of the plan, and those committed.", shards)
    tokens = {"prompt": s.tokens.prompt, "output": s.tokens.output, "cached": s.tokens.cached}
    g.by("kind", "tokens", "Tokens over all runs; cached ones are prompt tokens from the prefix cache.", tokens)
    health = s.health.model_dump()
    g.one("answers", "Answers of the engine, over all runs.", health.pop("answers"))
    g.by("problem", "suspicious_answers", "Answers that may be wrong, over all runs.", health)
    g.one("cost_usd", "Dollars for the seconds that engines were held, over all runs.", s.cost.usd_total)
    g.one("cost_per_1k_rows_usd", "Dollars for 1,000 good rows.", s.cost.usd_per_1k_rows)
    per_million = {"prompt": s.cost.usd_per_1m_input_tokens, "output": s.cost.usd_per_1m_output_tokens}
    g.by("kind", "cost_per_1m_tokens_usd", "All dollars, for a million tokens of this kind.", per_million)
    g.one("cost_at_api_price_usd", "Dollars for the job's tokens at the price of cost.api.", s.cost.usd_at_api_price)


def _add_run(g: _Gauges, s: Summary) -> None:
    """What covers the last run only."""
    ended = max((attempt.ended.timestamp() for attempt in s.attempts if attempt.ended is not None), default=None)
    g.one("run_ended_timestamp_seconds", "When the engines of the last run had ended, as Unix time.", ended)
    sources = {name: getattr(s.rows, name) for name in ("generated", "deduplicated", "reused", "rejected")}
    g.by("source", "run_rows", "Where the results of the last run came from.", sources)
    g.by("phase", "run_seconds", "Wall clock of the last run, by phase; `wall` is all of it.", s.seconds.model_dump())
    labels = s.engine_seconds.model_dump()
    g.one("run_engine_held_seconds", "Seconds that engines were held in the last run.", labels.pop("held"))
    g.by("label", "run_engine_seconds", "Seconds held in the last run, by what they were for.", labels)
    g.one("run_cost_usd", "Dollars of the last run.", s.cost.usd_this_run)
    g.by("label", "run_cost_by_label_usd", "Dollars of the last run, by what they were for.", s.cost.usd_by_label)
    g.one("run_requests_per_second", "Requests generated in the last run.", s.rate.requests_per_s)
    per_s = {"output": s.rate.output_tokens_per_s, "total": s.rate.total_tokens_per_s}
    g.by("kind", "run_tokens_per_second", "Tokens generated in the last run.", per_s)
    latencies = {
        (name.removesuffix("_s"), str(int(quantile[1:]) / 100)): value
        for name, percentiles in s.latency.model_dump().items()
        for quantile, value in percentiles.items()
    }
    g.many("run_latency_seconds", "Latencies of the last run's requests.", ("figure", "quantile"), latencies)
    for kind, lengths in (("prompt", s.lengths.prompt_tokens), ("output", s.lengths.output_tokens)):
        quantiles: dict[str, _Value] = {"0.5": lengths.p50, "0.95": lengths.p95, "0.99": lengths.p99, "1": lengths.max}
        g.by("quantile", f"run_{kind}_length_tokens", "Lengths in the last run; quantile 1 is the longest.", quantiles)
        g.one(f"run_{kind}_length_mean_tokens", "Mean length in the last run.", lengths.mean)
    ways = {"resume": s.saved.resume, "duplicates": s.saved.duplicates, "prefix_cache": s.saved.prefix_cache}
    g.by("by", "run_saved_rows", "Rows that the last run found done.", {way: each.rows for way, each in ways.items()})
    saved = {
        (way, kind): getattr(each, f"{kind}_tokens") for way, each in ways.items() for kind in ("prompt", "output")
    }
    g.many("run_saved_tokens", "Tokens that the last run did not compute.", ("by", "kind"), saved)
    seconds = {way: each.engine_seconds for way, each in ways.items()}
    g.by("by", "run_saved_engine_seconds", "Engine-seconds that they would have taken, estimated.", seconds)
    g.by("by", "run_saved_usd", "Dollars for these seconds.", {way: each.usd for way, each in ways.items()})
    peak = {"host": s.memory.host_peak_bytes, "device": s.memory.device_peak_bytes}
    g.by("where", "run_peak_memory_bytes", "The most that one replica held in the last run.", peak)
    g.one("run_kv_cache_usage_peak_ratio", "Peak use of the KV cache in the last run.", s.engine.kv_cache_usage_peak)
    g.one("run_prefix_cache_hit_ratio", "Prefix-cache hits per token asked for.", s.engine.prefix_cache_hit_rate)
    g.one("run_preemptions", "Preemptions in the last run.", s.engine.preemptions)
