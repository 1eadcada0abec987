"""How many tokens a KV cache will hold, from the best source that there is."""

from __future__ import annotations

from typing import Any

import pytest

from batchjobs.settings.capacity import NOTHING, Capacity, kv_capacity, learn
from batchjobs.settings.device import GIB, Device
from batchjobs.settings.model_config import KvBytes
from batchjobs.spec import parse_job
from schemas.job import JobSpec

CPU, H100 = Device("cpu", "cpu", 24 * GIB, 2), Device("gpu", "NVIDIA H100 80GB HBM3", 80 * GIB)
DEMO = KvBytes(23_040, "")  # of a token of the demo model


def job(model: str = "m", dtype: str | None = None, **engine: Any) -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
        "model": {"name": model, "dtype": dtype}, "engine": engine, "output": {"path": "y"},
    })  # fmt: skip


def test_a_gibibyte_holds_what_vllm_reports_for_the_demo_model() -> None:
    capacity = kv_capacity(job(kv_cache_memory_bytes=GIB), CPU, DEMO, None)
    assert capacity.tokens == 46_592
    assert "46,592 tokens of KV cache in 1 GiB (kv_cache_memory_bytes) at 23,040 bytes each" in capacity.why


def test_what_an_engine_reported_comes_first() -> None:
    sized = job(kv_cache_memory_bytes=GIB, extra={"num_gpu_blocks_override": 10})
    assert kv_capacity(sized, CPU, DEMO, None, reported=5_000).tokens == 5_000
    assert kv_capacity(sized, CPU, DEMO, None).tokens == 1_280
    assert kv_capacity(sized, H100, KvBytes(None, "no formula"), None).tokens == 160


def test_a_gpus_memory_is_shared_by_weights_reserve_and_cache() -> None:
    weights = 16 * GIB
    plain, half = (kv_capacity(job(gpu_memory_utilization=u), H100, DEMO, weights).tokens for u in (None, 0.46))
    assert plain == int(80 * GIB * 0.92 - weights - GIB - 0.03 * 80 * GIB) // (23_040 * 16) * 16
    assert half is not None
    assert 0 < half < plain / 2


def test_weights_that_do_not_fit_leave_no_room() -> None:
    assert kv_capacity(job(), H100, DEMO, 100 * GIB).tokens == 0


@pytest.mark.parametrize(
    ("device", "kv", "weights", "why"),
    [
        (H100, KvBytes(None, "gemma2 has a sliding window"), 1, "gemma2 has a sliding window"),
        (H100, DEMO, None, "the size of the model's weights is not known before it is downloaded"),
        (Device("other", "other"), DEMO, 1, "the memory that vLLM will find on this other is not known"),
        (Device("cpu", "cpu", None), DEMO, 1, "the memory that vLLM will find on this cpu is not known"),
    ],
)
def test_what_is_not_known_is_not_guessed(device: Device, kv: KvBytes, weights: int | None, why: str) -> None:
    capacity = kv_capacity(job(), device, kv, weights)
    assert (capacity.tokens, capacity.why) == (None, why)
    assert capacity.sequences(100) is None


def test_the_cpus_legacy_variable_comes_before_the_setting_as_in_vllm() -> None:
    sized = job(kv_cache_memory_bytes=GIB, env={"VLLM_CPU_KVCACHE_SPACE": "2"})
    assert kv_capacity(sized, CPU, DEMO, None).tokens == 93_184
    assert kv_capacity(sized, H100, DEMO, None).tokens == GIB // (23_040 * 16) * 16


def test_a_cpu_without_a_size_takes_its_share_of_the_memory() -> None:
    capacity = kv_capacity(job(), CPU, DEMO, GIB)
    assert capacity.tokens == int(24 * GIB * 0.92 - 2 * GIB) // (23_040 * 128) * 128


def test_sequences_take_whole_blocks() -> None:
    capacity = Capacity(1_280, "", block=128)
    assert [capacity.sequences(tokens) for tokens in (1, 128, 129, 1_280, 1_281)] == [10, 10, 5, 1, 0]


def test_the_reserve_that_an_engine_needed_counts_for_other_sizes_of_memory() -> None:
    weights = 16 * GIB
    reported = 2_000_000
    learnt = learn(job(gpu_memory_utilization=0.9), H100, DEMO, weights, reported)
    assert learnt.bytes_per_token is None
    assert kv_capacity(job(gpu_memory_utilization=0.9), H100, DEMO, weights, learnt=learnt).tokens == reported
    less = kv_capacity(job(gpu_memory_utilization=0.8), H100, DEMO, weights, learnt=learnt)
    assert less.tokens == pytest.approx(reported - 8 * GIB / 23_040, abs=16)
    assert "as an earlier engine needed" in less.why


def test_where_no_formula_is_known_a_report_tells_the_bytes_of_a_token() -> None:
    unknown = KvBytes(None, "no formula is known for x")
    learnt = learn(job(kv_cache_memory_bytes=GIB), H100, unknown, None, 50_000)
    twice = kv_capacity(job(kv_cache_memory_bytes=2 * GIB), H100, unknown, None, learnt=learnt)
    assert twice.tokens == pytest.approx(100_000, abs=16)  # whole blocks
    assert "as an earlier engine's report implies" in twice.why


def test_a_report_that_was_foreseen_teaches_nothing() -> None:
    assert learn(job(kv_cache_memory_bytes=GIB), CPU, DEMO, None, 46_592) == NOTHING
    assert learn(job(extra={"num_gpu_blocks_override": 7}), CPU, DEMO, None, 896) == NOTHING


def test_no_block_is_lost_to_the_rounding_of_what_was_learnt() -> None:
    unknown = KvBytes(None, "no formula")
    device = Device("gpu", "x", 80 * GIB)
    for size in range(2**27, 2**27 + 40):
        sized = job(kv_cache_memory_bytes=size)
        for tokens in (11_648, 5_760, 8_704):
            learnt = learn(sized, device, unknown, None, tokens)
            assert kv_capacity(sized, device, unknown, None, learnt=learnt).tokens == tokens
