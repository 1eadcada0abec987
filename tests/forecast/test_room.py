"""What one engine holds, what to set, and what other precisions and more devices would change."""

from __future__ import annotations

from dataclasses import replace

from batchjobs.forecast.room import describe_capacity
from batchjobs.settings.capacity import Capacity
from batchjobs.settings.model_config import KvBytes
from batchjobs.settings.sample import Sample
from schemas.description import Alternative, CapacityDescription
from tests.forecast.facts import facts, gpu, job


def by_change(found: CapacityDescription) -> dict[str, Alternative]:
    return {alternative.change: alternative for alternative in found.alternatives}


def test_a_model_that_fits_needs_neither_quantising_nor_more_devices() -> None:
    found, unknown = describe_capacity(facts())
    assert unknown == {}
    assert (found.device, found.kv_bytes_per_token) == ("H100", 131_072)
    assert found.kv_cache_tokens is not None
    assert found.max_concurrent_sequences == (found.kv_cache_tokens // 16) // -(-300 // 16)
    assert found.advice == (
        f"It fits, and {found.max_concurrent_sequences:,} sequences at a time: neither quantising nor tensor "
        "parallelism is needed."
    )
    assert found.recommended["max_num_seqs"].value is not None
    assert found.recommended["max_model_len"].value == 768
    assert found.recommended["gpu_memory_utilization"].value == 0.92


def test_the_table_says_what_each_change_would_do() -> None:
    found, _ = describe_capacity(facts())
    table = by_change(found)
    assert list(table) == [
        "now", "kv_cache_dtype: fp8", "quantization: fp8", "a checkpoint in AWQ or GPTQ, 4 bits",
        "tensor_parallel_size: 2",
    ]  # fmt: skip
    now, small, fp8, four, two = table.values()
    assert small.kv_bytes_per_token == 65_536
    assert fp8.weights_bytes == now.weights_bytes - 6_980_000_000  # type: ignore[operator]
    assert four.weights_bytes is not None
    assert fp8.weights_bytes > four.weights_bytes > 0.25 * now.weights_bytes  # type: ignore[operator]
    assert (two.weights_bytes, two.kv_bytes_per_token) == (-(-now.weights_bytes // 2), 65_536)  # type: ignore[operator]
    held = [alternative.kv_cache_tokens or 0 for alternative in (now, fp8, four)]
    assert held == sorted(held)
    assert two.kv_cache_tokens > 2 * held[0]  # type: ignore[operator]


def test_a_model_that_does_not_fit_is_told_what_would_help() -> None:
    found, _ = describe_capacity(facts(device=gpu("T4")))
    table = by_change(found)
    assert (found.kv_cache_tokens, table["now"].fits) == (0, False)
    assert table["a checkpoint in AWQ or GPTQ, 4 bits"].fits
    assert table["tensor_parallel_size: 2"].fits
    assert found.advice is not None
    assert found.advice.startswith("The KV cache holds 0 tokens, which is too few for a context of 8,192 tokens.")
    assert "a checkpoint in AWQ or GPTQ, 4 bits" in found.advice


def test_a_context_that_is_too_long_for_the_cache_is_named() -> None:
    found, _ = describe_capacity(facts(job(max_model_len=None), gpu("L4")))
    assert found.advice is not None
    assert "too few for a context of 131,072 tokens" in found.advice
    assert "A shorter max_model_len" in found.advice


def test_more_of_the_memory_is_recommended_only_if_that_makes_it_fit() -> None:
    known = facts(job(max_model_len=None), gpu("A100-40"))
    held = known.capacity.tokens
    assert held is not None
    just_too_long = replace(known, max_len=held + 16)
    assert describe_capacity(just_too_long)[0].recommended["gpu_memory_utilization"].value == 0.95


def test_few_sequences_leave_the_device_idle_and_the_best_change_is_named() -> None:
    known = facts(device=gpu("L4"), capacity=Capacity(9_000, "9,000 tokens of KV cache", 1_000))
    found, _ = describe_capacity(known)
    assert found.max_concurrent_sequences == 9
    assert found.advice is not None
    assert found.advice.startswith("It fits, but only 9 sequences at a time")


def test_what_is_not_known_is_null_and_says_why() -> None:
    found, unknown = describe_capacity(facts(weights=None))
    assert (found.weights_bytes, found.kv_cache_tokens, found.advice) == (None, None, None)
    assert found.kv_bytes_per_token == 131_072
    assert unknown["capacity.weights_bytes"] == "the weights of m are not on this machine, or not whole"
    assert "weights is not known before it is downloaded" in unknown["capacity.kv_cache_tokens"]


def test_an_architecture_without_a_formula_is_refused_by_name() -> None:
    why = "gemma2 has layers of sliding attention"
    found, unknown = describe_capacity(facts(kv=KvBytes(None, why), capacity=Capacity(None, why)))
    assert found.kv_bytes_per_token is None
    assert (unknown["capacity.kv_bytes_per_token"], unknown["capacity.kv_cache_tokens"]) == (why, why)


def test_without_rows_nothing_is_recommended() -> None:
    found, unknown = describe_capacity(facts(sample=Sample()))
    assert (found.recommended, found.max_concurrent_sequences) == ({}, None)
    assert "capacity.recommended" in unknown
