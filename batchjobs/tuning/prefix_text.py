"""What `bench prefix-cache` has measured, for people, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Iterator

from batchjobs.tuning.table import aligned
from schemas.tuning import Phase, PrefixCacheBench

_LITTLE = 0.01  # hit rate that is as good as none
_HEAD = ("", "hits", "reused", "prompt tokens", "output tokens", "TTFT P95 s", "TPOT P95 ms", "queue P95 s", "total s",
         "total tok/s")  # fmt: skip


def text(bench: PrefixCacheBench) -> str:
    """The table and its meaning."""
    title = f"{bench.job}: {bench.rows:,} requests, three times on one engine ({bench.engine})"
    table = aligned([list(_HEAD), *(_cells(phase) for phase in bench.phases)], left=1)
    return "\n".join([title, "", *table, "", *bench.meaning])


def _cells(phase: Phase) -> list[str]:
    return [
        phase.name,
        f"{phase.hit_rate:.1%}",
        f"{phase.reused_tokens:,}",
        f"{phase.prompt_tokens:,}",
        f"{phase.output_tokens:,}",
        _seconds(phase.ttft_s.p95, ",.2f"),
        _seconds(None if phase.tpot_s.p95 is None else 1000 * phase.tpot_s.p95, ",.1f"),
        _seconds(phase.queue_s.p95, ",.2f"),
        f"{phase.total_s:,.1f}",
        f"{phase.total_tokens_per_s:,.0f}",
    ]


def _seconds(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def meaning(bench: PrefixCacheBench) -> Iterator[str]:
    """Sentences."""
    cold, hot, independent = bench.phases
    yield (
        "cold: the job's requests with an empty cache, so hits are what they share among themselves. hot: the same "
        "requests again. independent: the same lengths with nothing in common, so its answers differ in words and a "
        "little in length."
    )
    yield (
        f"What the rows share saves {_change(independent, cold)} of the time that rows which share nothing take; "
        f"what is still in the cache from before saves {_change(cold, hot)} of the rest."
    )
    yield (
        "Prefix caching shortens prefill, not decode: it shows in TTFT and in the total; TPOT falls only as far as "
        "less prefill of other requests comes between two tokens. TTFT contains the wait in the backlog (the queue), "
        "because all requests come at once."
    )
    if cold.hit_rate < _LITTLE:
        yield (
            "Cold, nothing is shared: the prompts have no beginning in common that fills a block of the KV cache (16 "
            "tokens on GPUs, 128 on CPU; engine.extra.block_size)."
        )
    held, left = bench.kv_cache_tokens, bench.distinct_prompt_tokens
    if held is not None and left is not None and left > held:
        yield (
            f"The load has {left:,} different prompt tokens, more than the {held:,} that the KV cache holds: part of "
            "it was gone before it came again. A smaller --rows shows what a cache that is large enough would do."
        )
    if failed := sum(phase.failed for phase in bench.phases):
        yield f"{failed:,} requests failed and are not in the figures of time."


def _change(before: Phase, after: Phase) -> str:
    return f"{1 - after.total_s / before.total_s:.0%}" if before.total_s else "0%"
