"""From a cause to the next setting, one step at a time."""

from __future__ import annotations

from typing import Any

import pytest

from batchjobs.errors import ContextTooShort
from batchjobs.settings.in_force import Settings, with_settings
from batchjobs.spec import parse_job
from batchjobs.supervision.causes import Cause
from batchjobs.supervision.remedies import Remedy, Situation, remedy_for
from schemas.job import JobSpec


def job(**engine: Any) -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
        "model": {"name": "m", "max_model_len": 8192}, "engine": engine, "output": {"path": "y"},
    })  # fmt: skip


def situation(words: str = "", settings: Settings | None = None, deaths: int = 1, **engine: Any) -> Situation:
    running = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
    return Situation(job(**engine), settings or {}, running, words, deaths)


def ladder(cause: Cause, words: str = "", **engine: Any) -> list[str]:
    """Every step until none is left, each cause repeating itself."""
    steps: list[str] = []
    settings: Settings = {}
    for deaths in range(1, 40):
        remedy = remedy_for(cause, situation(words, settings, deaths, **engine))
        if remedy is None:
            return steps
        settings = {**settings, **remedy.settings}
        steps.append(remedy.reason)
    raise AssertionError(f"no end: {steps}")


def test_out_of_memory_while_running_frees_cache_then_batch_then_concurrency() -> None:
    steps = ladder(Cause.ENGINE_OOM)
    assert steps[:3] == [
        "gpu_memory_utilization 0.92 -> 0.88",
        "gpu_memory_utilization 0.88 -> 0.84",
        "gpu_memory_utilization 0.84 -> 0.8",
    ]
    assert steps[3:6] == [
        "max_num_batched_tokens 8192 -> 4096",
        "max_num_batched_tokens 4096 -> 2048",
        "max_num_seqs 256 -> 128",
    ]
    assert steps[-2:] == ["max_num_seqs 2 -> 1", "enforce_eager: no CUDA graphs, no compilation"]


def test_an_explicit_cache_size_leaves_utilization_alone() -> None:
    assert "utilization" not in " ".join(ladder(Cause.ENGINE_OOM, kv_cache_memory_bytes=2**30))
    assert ladder(Cause.HOST_OOM, kv_cache_memory_bytes=2**30)[0] == f"kv_cache_memory_bytes {2**30} -> {2**29}"


def test_no_room_for_the_cache_asks_for_more_memory_first() -> None:
    assert ladder(Cause.NO_KV_ROOM)[:2] == [
        "gpu_memory_utilization 0.92 -> 0.95",
        "max_num_batched_tokens 8192 -> 4096",
    ]


def test_a_cache_smaller_than_the_context_ends_at_what_vllm_says_fits() -> None:
    words = (
        "To serve at least one request with the models's max seq len (8192), (2.0 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (1.0 GiB). Based on the available memory, the estimated maximum "
        "model length is 4096."
    )
    assert ladder(Cause.KV_TOO_SMALL, words) == ["gpu_memory_utilization 0.92 -> 0.95", "max_model_len 8192 -> 4096"]


@pytest.mark.parametrize(
    ("needed", "kv_cache_tokens", "length"),
    [
        (300, None, 1_024),  # four times what it was
        (900, None, 1_800),  # twice what is needed
        (4_500, None, 8_192),  # the model's own
        (900, 1_200, 1_200),  # what the cache holds
        (1_300, 1_200, 1_300),  # vLLM will say how much more memory that takes
    ],
)
def test_a_chosen_context_that_is_too_short_grows_so_that_few_restarts_follow(
    needed: int, kv_cache_tokens: int | None, length: int
) -> None:
    engine = {"max_model_len": 256, "model_max_len": 8_192, "kv_cache_tokens": kv_cache_tokens}
    found = Situation(job(), {"max_model_len": 256}, engine, str(ContextTooShort(7, needed, 256)), 1)
    remedy = remedy_for(Cause.CONTEXT_TOO_SHORT, found)
    assert remedy == Remedy({"max_model_len": length}, f"max_model_len 256 -> {length}")


def test_a_busy_gpu_is_waited_for_and_then_shared() -> None:
    words = "Free memory on device cuda:0 (40.0/80.0 GiB) on startup is less than desired GPU memory utilization"
    assert [remedy_for(Cause.GPU_BUSY, situation(words, deaths=n)) for n in (1, 3)] == [
        Remedy({}, "the GPU is busy: waiting 30 s", wait_s=30.0)
    ] * 2
    assert remedy_for(Cause.GPU_BUSY, situation(words, deaths=4)) == Remedy(
        {"gpu_memory_utilization": 0.48}, "the GPU is busy: gpu_memory_utilization -> 0.48"
    )


def test_a_sampler_that_does_not_fit_lowers_concurrency() -> None:
    assert ladder(Cause.SAMPLER_OOM)[0] == "max_num_seqs 256 -> 128"


def test_a_hang_is_tried_again_then_without_graphs_then_without_async_scheduling() -> None:
    steps = ["the same settings once more", "enforce_eager: no CUDA graphs, no compilation", "async_scheduling off"]
    assert ladder(Cause.HANG) == steps


@pytest.mark.parametrize("cause", [Cause.DEVICE_ASSERT, Cause.ENGINE_DIED])
def test_a_death_without_evidence_changes_no_setting(cause: Cause) -> None:
    assert remedy_for(cause, situation()) is None


def test_settings_go_over_the_jobs_own() -> None:
    settings = {"max_num_seqs": 8, "max_model_len": 4096, "extra.async_scheduling": False}
    changed = with_settings(job(max_num_seqs=64, extra={"seed": 1}), settings)
    assert changed.engine.max_num_seqs == 8
    assert changed.engine.extra == {"seed": 1, "async_scheduling": False}
    assert changed.model is not None
    assert changed.model.max_model_len == 4096
