"""`batchjobs bench prefix-cache`: the same load on one engine with a cold cache, a hot one, and nothing to share.

What makes it comparable: every call is one `LLM.generate` (`feed: generate`, a shard for each), so calls do not overlap
and the engine stays the same process. Requests are sent as token ids. Where nothing shall be shared, two tokens near
the beginning of each are replaced: vLLM finds cached blocks by a chain of hashes from the first block on, so nothing
behind that place is found either. A call of that kind comes before the cold one, whose first steps would else be slow
for other reasons than its cache.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc

from batchjobs.accounts.histogram import Histogram
from batchjobs.errors import EngineFailed, SpecError
from batchjobs.storage.checkpoint import read_part
from batchjobs.storage.store import open_store
from batchjobs.tuning.prefix_load import CALLS, load_job
from batchjobs.tuning.prefix_text import meaning
from batchjobs.tuning.rows import on_sample, write_sample
from batchjobs.tuning.survey import survey
from batchjobs.tuning.trial import Run, in_folder
from schemas.job import JobSpec
from schemas.summary import Percentiles, Summary
from schemas.tuning import Phase, PrefixCacheBench

_Name = Literal["cold", "hot", "independent"]
_TOLD: tuple[_Name, ...] = ("cold", "hot", "independent")
_COLUMNS = ["status", "prompt_tokens", "output_tokens", "cached_tokens", "queue_s", "ttft_s", "tpot_s"]


def bench_prefix_cache(job: JobSpec, rows: int, run: Run) -> PrefixCacheBench:
    """Run so many of the job's rows four times in one engine's life, and tell of the last three.

    Raises SpecError if the job has no prefix cache, EngineFailed if its engine does not live through all.
    """
    if job.engine.kind == "echo":
        raise SpecError("engine.kind: found echo, which has no prefix cache; allowed: vllm")
    if job.engine.enable_prefix_caching is False:
        raise SpecError("engine.enable_prefix_caching: found false, so there is nothing to measure; allowed: true")
    surveyed = survey(job)
    with tempfile.TemporaryDirectory(prefix="batchjobs-bench-", ignore_cleanup_errors=True) as folder:
        sample = Path(folder, "rows.parquet")
        write_sample(surveyed.job, surveyed.plan, surveyed.dataset, rows, sample)
        load, requests = load_job(on_sample(surveyed.job, sample), Path(folder, "load.parquet"))
        load = in_folder(load, folder)
        summary = run(load)
        _check(summary)
        store = open_store(load.output.path)
        phases = [
            _phase(name, read_part(store, CALLS.index(name), _COLUMNS)) for name in ("cold", "hot", "independent")
        ]
    cold = phases[0]
    bench = PrefixCacheBench(
        job=job.name,
        engine=f"{summary.engine.kind} {summary.engine.version or ''}".strip(),
        rows=requests,
        distinct_prompt_tokens=cold.prompt_tokens - cold.reused_tokens,
        kv_cache_tokens=summary.engine.kv_cache_tokens,
        phases=phases,
        meaning=[],
    )
    return bench.model_copy(update={"meaning": list(meaning(bench))})


def _check(summary: Summary) -> None:
    if summary.state != "completed" or len(summary.attempts) != 1:
        why = next((a.failure for a in summary.attempts if a.failure), None) or summary.message
        raise EngineFailed(f"One engine did not live through all calls, so they cannot be compared: {why}")
    if summary.engine.prefix_cache_hit_rate is None:
        raise EngineFailed("The engine runs without a prefix cache: vLLM has none for this model.")


def _phase(name: _Name, part: Any) -> Phase:
    """The figures of a call, from its part."""
    answered = part.filter(pc.is_valid(part["cached_tokens"]))
    columns: dict[str, list[Any]] = answered.to_pydict()
    prompt, reused, output = (sum(columns[f"{kind}_tokens"]) for kind in ("prompt", "cached", "output"))
    # All requests of a call are queued at its beginning: it ends with the one that took longest.
    times = zip(columns["ttft_s"], columns["tpot_s"], columns["output_tokens"], strict=True)
    total = max((ttft + (tpot or 0.0) * (tokens - 1) for ttft, tpot, tokens in times), default=0.0)
    return Phase(
        name=name,
        requests=part.num_rows,
        failed=columns["status"].count("error") + part.num_rows - answered.num_rows,
        prompt_tokens=prompt,
        reused_tokens=reused,
        output_tokens=output,
        hit_rate=reused / prompt if prompt else 0.0,
        ttft_s=_percentiles(columns["ttft_s"]),
        tpot_s=_percentiles(columns["tpot_s"]),
        queue_s=_percentiles(columns["queue_s"]),
        total_s=total,
        total_tokens_per_s=(prompt + output) / total if total else 0.0,
    )


def _percentiles(seconds: list[float | None]) -> Percentiles:
    histogram = Histogram()
    for each in seconds:
        histogram.add(each)
    return histogram.percentiles()
