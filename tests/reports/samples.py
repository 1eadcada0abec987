"""Hand-made runs: one with every figure that a summary can have, one with none."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.figures import Estimate, Interval
from schemas.summary import (
    Attempt,
    Change,
    Cost,
    Decision,
    EngineFigures,
    EngineSeconds,
    Health,
    Latency,
    Memory,
    OrderFigures,
    Percentiles,
    Previous,
    Rate,
    Rows,
    Saved,
    Saving,
    Seconds,
    ShardCounts,
    Summary,
    Timeline,
    Tokens,
)

BEGAN = datetime(2026, 11, 29, 1, 0, tzinfo=UTC)


def bare_summary(**changes: Any) -> Summary:
    """A summary as an early version wrote it, of a job without a price: most is not known."""
    known: dict[str, Any] = {
        "state": "completed", "exit_code": 0, "job": "bare", "output": "/lake/out", "message": "All rows.",
        "rows": Rows(), "tokens": Tokens(), "seconds": Seconds(), "engine_seconds": EngineSeconds(), "rate": Rate(),
        "rate_wall": Rate(), "latency": Latency(), "engine": EngineFigures(kind="echo"), "cost": Cost(),
        "shards": ShardCounts(),
    }  # fmt: skip
    return Summary(**{**known, **changes})


def timeline(steps: int = 240, step_s: float = 30.0) -> Timeline:
    """Two hours: a start, a steady load that breathes, a dip where the engine died, a tail."""
    load = [_load(step / steps) for step in range(steps)]
    return Timeline(
        step_s=step_s,
        running=[256 * each for each in load],
        waiting=[380 * max(0.0, each - 0.55) for each in load],
        kv_cache_usage=[None if each == 0 else 0.9 * each for each in load],
        prompt_tokens_per_s=[21_000 * each * (1 + 0.2 * math.sin(step)) for step, each in enumerate(load)],
        output_tokens_per_s=[5_200 * each * (1 + 0.06 * math.sin(step / 3)) for step, each in enumerate(load)],
        rows_done=[4_000 * step for step in range(steps)],
    )


def _load(at: float) -> float:
    if at < 0.03 or 0.60 < at < 0.64:
        return 0.0
    return min(1.0, (at - 0.03) / 0.02) if at < 0.93 else max(0.02, (1 - at) / 0.07)


def attempts() -> list[Attempt]:
    """One that ran out of memory, one that did the rest."""
    versions = {"batchjobs": "0.1.0", "engine": "0.32.0", "pyarrow": "26.0.1", "transformers": "5.19.0"}
    settings: dict[str, object] = {"max_num_seqs": 512, "gpu_memory_utilization": 0.95, "kv_cache_dtype": "fp8"}
    died = Attempt(
        replica=0, attempt=1, started=BEGAN, ended=BEGAN + timedelta(minutes=74), held_s=4_440, usd_per_hour=2.5,
        device="NVIDIA H100 80GB HBM3", cause="engine_oom", rows_done=580_112, settings=settings, versions=versions,
        failure="the engine ran out of GPU memory", remedy="max_num_seqs 512 -> 256",
        evidence=["INFO 11-29 engine.py:77] step 90112", "torch.OutOfMemoryError: CUDA out of memory."],
    )  # fmt: skip
    went_on = died.model_copy(update={
        "attempt": 2, "started": BEGAN + timedelta(minutes=74), "ended": BEGAN + timedelta(minutes=121),
        "held_s": 2_820.0, "cause": "done", "failure": None, "remedy": None, "evidence": [], "rows_done": 379_000,
        "settings": {**settings, "max_num_seqs": 256}, "quarantined": {77_123: "illegal memory access"},
    })  # fmt: skip
    return [died, went_on]


def previous(**changes: Any) -> Previous:
    """The night before was faster."""
    figures = (
        (
            "total tokens/s",
            31_204.0,
            24_871.0,
            "Total tokens/s fell by 20.3%, more than max_slowdown 15%.",
        ),
        ("cost.usd_per_1k_rows", 0.00451, 0.00524, None),
        ("error_rate", 0.0021, 0.0019, None),
        ("output_tokens.mean", 61.2, 61.9, None),
        ("memory.device_peak_bytes", None, 78_383_153_152.0, None),
    )
    known: dict[str, Any] = {
        "ended": BEGAN - timedelta(days=1), "same_settings": False,
        "settings": ["engine.max_num_seqs: 512 -> 256", "engine.version: 0.31.1 -> 0.32.0"],
        "changes": [Change(figure=f, before=b, now=n, breach=why) for f, b, n, why in figures],
    }  # fmt: skip
    return Previous(**{**known, **changes})


def _saving(rows: int, prompt: int, output: int, seconds: float) -> Saving:
    usd = seconds / 3600 * 2.5
    return Saving(rows=rows, prompt_tokens=prompt, output_tokens=output, engine_seconds=seconds, usd=usd)


def full_summary(**changes: Any) -> Summary:
    """Everything is known."""
    held = {"startup": 190.0, "productive": 6_214.0, "starved": 72.0, "tail": 214.0, "draining": 12.0, "lost": 558.0}
    known: dict[str, Any] = {
        "state": "partial", "exit_code": 3, "job": "docstring-summaries", "output": "s3://lake/summaries/dt=2026-11-28",
        "message": "21,840 of 960,000 rows failed (2.27%, max_error_rate 2.00%).",
        "rows": Rows(planned=1_000_000, total=960_000, filtered=40_000, ok=938_160, error=21_840, generated=799_000,
                     deduplicated=41_000, reused=110_000, rejected=10_000),
        "errors": {"prompt_too_long": 20_000, "invalid_output": 1_839, "engine_crash": 1},
        "warnings": {"max_tokens": 70_112, "context": 12},
        "tokens": Tokens(prompt=160_000_000, output=57_400_000, cached=61_000_000, recomputed=412_000,
                         saved_by_deduplication=9_000_000),
        "seconds": Seconds(wall=7_290, plan=14, engine_start=190, generating=7_058, finish=28, starved=72, tail=214),
        "engine_seconds": EngineSeconds(held=7_260, **held),
        "rate": Rate(requests_per_s=113.2, output_tokens_per_s=6_792.1, total_tokens_per_s=24_871.4),
        "rate_wall": Rate(requests_per_s=109.6, output_tokens_per_s=6_575.9, total_tokens_per_s=24_079.8),
        "latency": Latency(queue_s=Percentiles(p50=2.1, p95=6.6, p99=9.8),
                           ttft_s=Percentiles(p50=2.3, p95=6.9, p99=10.4),
                           tpot_s=Percentiles(p50=0.034, p95=0.051, p99=0.066)),
        "engine": EngineFigures(kind="vllm", version="0.32.0", replicas=1, max_num_seqs=256,
                                max_num_batched_tokens=8_192, max_model_len=4_096, kv_cache_tokens=412_560,
                                kv_cache_usage_peak=0.983, prefix_cache_hit_rate=0.381, preemptions=1_204),
        "order": OrderFigures(strategy="prefix", reason="38% of the prompt tokens looked at are shared prefixes"),
        "sizing": {"max_num_seqs": Decision(value=256, reason="What the KV cache holds at P95."),
                   "enforce_eager": Decision(value=False, reason="Compiling pays from 4,000 rows on."),
                   "max_num_batched_tokens": Decision(value=None, reason="Nothing is known of this GPU.")},
        "cost": Cost(usd_total=5.78, usd_this_run=5.04, usd_per_1k_rows=0.00616, usd_per_1m_input_tokens=0.0361,
                     usd_per_1m_output_tokens=0.1007, usd_at_api_price=58.4,
                     usd_by_label={label: seconds / 3600 * 2.5 for label, seconds in held.items()}),
        "saved": Saved(resume=_saving(110_000, 18_000_000, 6_000_000, 910),
                       duplicates=_saving(41_000, 6_500_000, 2_500_000, 340),
                       prefix_cache=_saving(0, 61_000_000, 0, 1_120)),
        "health": Health(answers=938_160, empty=211, truncated=70_124, invalid=1_839, repetitive=3_120),
        "memory": Memory(host_peak_bytes=9_663_676_416, device_peak_bytes=78_383_153_152),
        "timeline": timeline(),
        "foreseen": Estimate(
            seconds=Interval(low=5_400, expected=6_300, high=7_000), usd=Interval(low=3.9, expected=4.4, high=5.2),
            basis="Measured on 28 November with the same model, device and engine version."),
        "previous": previous(),
        "attempts": attempts(),
        "shards": ShardCounts(total=245, committed=245, reused=27),
    }  # fmt: skip
    return Summary(**{**known, **changes})
