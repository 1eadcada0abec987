"""What a configuration says of context and KV cache; what no formula covers is not guessed at."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from batchjobs.settings.model_config import kv_bytes_per_token, max_len_of
from batchjobs.spec import parse_job
from schemas.job import JobSpec


def job(engine: dict[str, Any] | None = None, **model: Any) -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
        "model": {"name": "m", **model}, "engine": engine or {}, "output": {"path": "y"},
    })  # fmt: skip


def config(kind: str, **values: Any) -> Any:
    return AutoConfig.for_model(kind, **values)


LLAMA_8B = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
QWEN_7B = {"num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}
FALCON_7B = {"num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True}
DEEPSEEK_V3 = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("llama", {**LLAMA_8B, "num_key_value_heads": None}, 2 * 32 * 32 * 128 * 2),  # MHA
        ("llama", LLAMA_8B, 131_072),  # GQA
        ("qwen2", QWEN_7B, 57_344),
        ("falcon", FALCON_7B, 2 * 32 * 1 * 64 * 2),  # MQA
        ("llama", {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
                   "head_dim": 64}, 23_040),
        ("qwen3", {"num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
                   "head_dim": 128}, 2 * 28 * 8 * 128 * 2),  # heads wider than their share of the hidden size
        ("deepseek_v3", DEEPSEEK_V3, 70_272),  # MLA
    ],
)  # fmt: skip
def test_bytes_of_a_token(kind: str, values: dict[str, Any], expected: int) -> None:
    assert kv_bytes_per_token(config(kind, **values), job()).per_token == expected


def test_tensor_parallelism_divides_the_heads_down_to_one_and_leaves_mla_whole() -> None:
    by_size = {
        size: kv_bytes_per_token(config("llama", **LLAMA_8B), job({"tensor_parallel_size": size})).per_token
        for size in (2, 8, 16)
    }
    assert by_size == {2: 65_536, 8: 16_384, 16: 16_384}
    assert (
        kv_bytes_per_token(config("deepseek_v3", **DEEPSEEK_V3), job({"tensor_parallel_size": 8})).per_token == 70_272
    )


def test_the_type_of_the_cache_counts_and_else_that_of_the_model() -> None:
    llama = config("llama", **LLAMA_8B)
    assert kv_bytes_per_token(llama, job(kv_cache_dtype="fp8")).per_token == 65_536
    assert kv_bytes_per_token(llama, job(dtype="float32")).per_token == 262_144
    assert kv_bytes_per_token(llama, job(dtype="float32", kv_cache_dtype="bfloat16")).per_token == 131_072


@pytest.mark.parametrize(
    ("kind", "values", "model", "engine", "why"),
    [
        ("gemma2", {}, {}, {}, "gemma2 has layers of sliding attention"),
        ("mistral", {"sliding_window": 4096}, {}, {}, "mistral has a sliding window of 4096 tokens"),
        ("jamba", {}, {}, {}, "jamba has layers of linear attention"),
        ("mamba", {}, {}, {}, "mamba has layers of linear attention"),
        ("t5", {}, {}, {}, "t5 has cross-attention"),
        ("mpt", {}, {}, {}, "no formula is known for mpt"),
        ("llava", {}, {}, {}, "no formula is known for llava"),
        ("llama", {}, {"kv_cache_dtype": "nvfp4"}, {}, "no formula is known for kv_cache_dtype nvfp4"),
        ("llama", {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}},
         {}, {}, "the checkpoint may bring a quantisation of the KV cache"),
        ("llama", {}, {}, {"extra": {"speculative_config": {}}},
         "engine.extra.speculative_config changes what a token takes"),
    ],
)  # fmt: skip
def test_what_the_formula_does_not_cover_is_named(
    kind: str, values: dict[str, Any], model: dict[str, Any], engine: dict[str, Any], why: str
) -> None:
    found = kv_bytes_per_token(config(kind, **values), job(engine, **model))
    assert (found.per_token, found.why) == (None, why)


def test_a_configuration_that_cannot_be_read_says_so() -> None:
    found = kv_bytes_per_token(None, job(name="org/unheard-of"))
    assert (found.per_token, found.why) == (None, "the configuration of org/unheard-of cannot be read without vLLM")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("llama", {"max_position_embeddings": 8192}, 8192),
        ("gpt2", {"n_positions": 1024}, 1024),
        ("llama", {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 8192),
        ("llama", {"max_position_embeddings": 131_072, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}}, 131_072),
        ("mamba", {}, None),
    ],
)  # fmt: skip
def test_the_longest_context_is_the_one_that_vllm_derives(
    kind: str, values: dict[str, Any], expected: int | None
) -> None:
    assert max_len_of(config(kind, **values)) == expected
