"""What a model's configuration says of its context and its KV cache, without loading the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from batchjobs.rows.tokenizers_only import transformers
from schemas.job import JobSpec

# Of these the formulas are known to hold; anything else is not guessed at.
_ATTENTION = frozenset({
    "bloom", "cohere", "falcon", "gemma", "glm4", "glm4_moe", "gpt2", "gptj", "granite", "granitemoe", "llama",
    "mistral", "mixtral", "opt", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "stablelm",
})  # fmt: skip
_MLA = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2"})
# Arguments of vllm.LLM that change what a token costs.
_EXTRA = ("decode_context_parallel_size", "hf_overrides", "kv_cache_dtype_skip_layers", "pipeline_parallel_size",
          "prefill_context_parallel_size", "speculative_config")  # fmt: skip
_KV_BYTES = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float16": 2, "bfloat16": 2}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
            "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len")  # fmt: skip
_SCALED_ALREADY = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


@dataclass(frozen=True)
class KvBytes:
    """Bytes of KV cache that one token takes on one device, or why that is not known."""

    per_token: int | None
    why: str  # the formula with its numbers, or what it does not cover


def load_config(job: JobSpec) -> Any | None:
    """The configuration with its class's defaults (transformers' PreTrainedConfig); None if it cannot be read."""
    assert job.model is not None
    try:
        return transformers().AutoConfig.from_pretrained(
            job.model.name, revision=job.model.revision, trust_remote_code=job.model.trust_remote_code
        )
    except Exception:  # transformers raises many types; what it does not know, vLLM may
        return None


def max_len_of(config: Any | None) -> int | None:
    """The longest context of a model, as vLLM 0.32 derives it for `max_model_len: null`; None if it is not said.

    The rules are those of `vllm.config.model._get_and_verify_max_len`.
    """
    if config is None:
        return None
    text = config.get_text_config()
    found = [length for name in _LENGTHS if isinstance(length := getattr(text, name, None), int)]
    if not found:
        return None
    longest: float = getattr(text, "model_max_length", None) or min(found)
    factors = [rope.get("factor") or 1.0 for rope in _ropes(text) if rope.get("rope_type") not in _SCALED_ALREADY]
    if factors and "gemma3" not in text.model_type:
        longest *= factors[-1]
    if any(rope.get("rope_type") == "longrope" for rope in _ropes(text)):
        longest = getattr(text, "original_max_position_embeddings", None) or longest
    return int(longest)


def _ropes(text: Any) -> Iterator[dict[str, Any]]:
    """The parameters of rotary embeddings: one set, or one for each type of layer."""
    found = getattr(text, "rope_parameters", None) or {}
    yield from [found] if "rope_type" in found else [rope for rope in found.values() if isinstance(rope, dict)]


def kv_bytes_per_token(config: Any | None, job: JobSpec) -> KvBytes:
    """Bytes of KV cache per token and device: 2 x layers x KV heads x head size x bytes of a value, or MLA's formula.

    KV heads are divided over `tensor_parallel_size` devices, at least one on each; MLA's latent is on all of them.
    """
    assert job.model is not None
    if config is None:
        return KvBytes(None, f"the configuration of {job.model.name} cannot be read without vLLM")
    text = config.get_text_config()
    problem = _not_covered(config, text, job) or _unknown_dtype(config, job)
    if problem is not None:
        return KvBytes(None, problem)
    layers, value = text.num_hidden_layers, _value_bytes(job)
    if text.model_type in _MLA:
        width = text.kv_lora_rank + text.qk_rope_head_dim
        return KvBytes(layers * width * value, f"MLA: {layers} layers x {width} values x {value} bytes")
    heads, size = max(1, _kv_heads(text) // job.engine.tensor_parallel_size), _head_size(text)
    why = f"2 x {layers} layers x {heads} KV heads x head size {size} x {value} bytes"
    return KvBytes(2 * layers * heads * size * value, why)


def kv_heads(config: Any | None) -> int | None:
    """KV heads of the model; None if not known. MLA has none: what it keeps is the same for all heads."""
    text = config.get_text_config() if config is not None else None
    return _kv_heads(text) if text is not None and text.model_type in _ATTENTION else None


def vocabulary_of(config: Any | None) -> int | None:
    """Tokens of the model's vocabulary; None if not known."""
    size = getattr(config.get_text_config(), "vocab_size", None) if config is not None else None
    return size if isinstance(size, int) else None


def attention_heads(config: Any | None) -> int | None:
    """Query heads of the model, which tensor parallelism divides; None if not known."""
    heads = getattr(config.get_text_config(), "num_attention_heads", None) if config is not None else None
    return heads if isinstance(heads, int) else None


def active_experts(config: Any | None) -> float:
    """The share of its experts that a token of a mixture-of-experts model passes; 1 if that is not known."""
    text = config.get_text_config() if config is not None else None
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((n for name in names if isinstance(n := getattr(text, name, None), int) and n), None)
    each = getattr(text, "num_experts_per_tok", None)
    return each / experts if experts and isinstance(each, int) else 1.0


def _not_covered(config: Any, text: Any, job: JobSpec) -> str | None:
    kind, layers = text.model_type, set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    changed = [name for name in _EXTRA if name in job.engine.extra]
    if changed:
        return f"engine.extra.{changed[0]} changes what a token takes"
    if config.is_encoder_decoder:
        return f"{kind} has cross-attention"
    if layers:
        return f"{kind} has layers of {' and '.join(sorted(layers)).replace('_', ' ')}"
    if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
        return f"{kind} has a sliding window of {text.sliding_window} tokens"
    if config.model_type != kind or kind not in _ATTENTION | _MLA:
        return f"no formula is known for {config.model_type}"
    return None


def _unknown_dtype(config: Any, job: JobSpec) -> str | None:
    assert job.model is not None
    asked = job.model.kv_cache_dtype or "auto"
    if asked != "auto":
        return None if asked in _KV_BYTES else f"no formula is known for kv_cache_dtype {asked}"
    quantization = getattr(config, "quantization_config", None)
    quantization = quantization if isinstance(quantization, dict) else getattr(quantization, "__dict__", {})
    own = any(quantization.get(name) for name in ("kv_cache_scheme", "kv_cache_quant_algo", "quantization"))
    return "the checkpoint may bring a quantisation of the KV cache" if own else None


def _value_bytes(job: JobSpec) -> int:
    """Bytes of one value. vLLM loads what is stored as float32 in 16 bits unless `dtype` says otherwise."""
    assert job.model is not None
    asked = job.model.kv_cache_dtype or "auto"
    return _KV_BYTES[asked] if asked != "auto" else 4 if job.model.dtype in ("float32", "float") else 2


def _kv_heads(text: Any) -> int:
    if text.model_type == "falcon" and text.multi_query and not text.new_decoder_architecture:
        return 1
    own = (getattr(text, name, None) for name in ("num_kv_heads", "num_key_value_heads"))
    return int(next((heads for heads in own if heads is not None), text.num_attention_heads))


def _head_size(text: Any) -> int:
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
