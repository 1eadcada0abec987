"""The prefix-cache benchmark on the real engine, and what it says of its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.job import run_job
from batchjobs.spec import parse_job
from batchjobs.supervision.progress import Silent
from batchjobs.tuning.prefix_cache import bench_prefix_cache
from batchjobs.tuning.prefix_text import meaning, text
from schemas.summary import Percentiles
from schemas.tuning import Phase, PrefixCacheBench
from scripts.build_data import docstring_rows
from scripts.build_model import build_model

MODEL = Path("demo/model").resolve()


def phase(name: Any, reused: int, seconds: float, **known: Any) -> Phase:
    times = dict.fromkeys(("ttft_s", "tpot_s", "queue_s"), Percentiles(p95=0.25))
    rates = {"hit_rate": reused / 1000, "total_s": seconds, "total_tokens_per_s": 1100 / seconds}
    counts = {"requests": 10, "failed": 0, "prompt_tokens": 1000, "reused_tokens": reused, "output_tokens": 100}
    return Phase.model_validate({"name": name, **counts, **rates, **times, **known})


def bench(cold: Phase, **known: Any) -> str:
    phases = [cold, phase("hot", 900, 4), phase("independent", 0, 10)]
    made = {"job": "t", "engine": "vllm 0.32.0", "rows": 10, "distinct_prompt_tokens": 600, "kv_cache_tokens": 5000}
    found = PrefixCacheBench.model_validate({**made, "phases": phases, "meaning": [], **known})
    return text(found.model_copy(update={"meaning": list(meaning(found))}))


def test_the_numbers_are_told_with_what_they_mean() -> None:
    shown = bench(phase("cold", 400, 8))
    assert shown.splitlines()[3].split() == [
        "cold",
        "40.0%",
        "400",
        "1,000",
        "100",
        "0.25",
        "250.0",
        "0.25",
        "8.0",
        "138",
    ]
    assert "saves 20% of the time that rows which share nothing take" in shown
    assert "saves 50% of the rest" in shown
    assert "shortens prefill, not decode" in shown
    assert "fills a block" not in shown
    assert "more than" not in shown


def test_a_load_that_shares_no_block_or_outgrows_the_cache_is_said_so() -> None:
    assert "no beginning in common that fills a block" in bench(phase("cold", 0, 10))
    assert "600 different prompt tokens, more than the 500" in bench(phase("cold", 400, 8), kv_cache_tokens=500)
    assert "3 requests failed" in bench(phase("cold", 400, 8, failed=3))


@pytest.mark.engine
def test_a_hot_cache_hits_more_than_a_cold_one_and_independent_prompts_hit_nothing(tmp_path: Path) -> None:
    build_model(MODEL)
    pq.write_table(pa.Table.from_pylist(docstring_rows(60)), tmp_path / "a.parquet")
    job = parse_job({
        "name": "real",
        "input": {"path": str(tmp_path / "a.parquet")},
        "prompt": {"system": "You write one-line summaries of Python documentation. " * 5, "user": "{{ text[:600] }}"},
        "sampling": {"temperature": 0, "max_tokens": 4},
        "model": {"name": str(MODEL), "max_model_len": 512},
        "engine": {"max_num_seqs": 8, "enforce_eager": True, "kv_cache_memory_bytes": 2**28,
                   "extra": {"block_size": 32}},
        "output": {"path": str(tmp_path / "out")},
    })  # fmt: skip
    found = bench_prefix_cache(job, 24, lambda job: run_job(job, Silent()))
    cold, hot, independent = found.phases
    assert [p.requests for p in found.phases] == [24, 24, 24]
    assert cold.prompt_tokens == hot.prompt_tokens == independent.prompt_tokens
    assert independent.reused_tokens == 0
    assert 0.1 < cold.hit_rate < hot.hit_rate
    assert hot.hit_rate > 0.8
    assert cold.reused_tokens % 32 == hot.reused_tokens % 32 == 0  # whole blocks
    assert found.kv_cache_tokens is not None
    for each in found.phases:
        assert each.failed == 0
        assert each.ttft_s.p95 is not None
        assert each.queue_s.p95 is not None
        assert each.ttft_s.p95 >= each.queue_s.p95
        assert each.total_s >= each.ttft_s.p95 / 1.01  # percentiles are exact to 1 %
    assert not (tmp_path / "out").exists()
