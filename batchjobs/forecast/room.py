"""What one engine of a job holds on its device, what to set, and what other precisions or more devices change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from batchjobs.settings.capacity import Learnt, fixed_room, kv_capacity, utilization
from batchjobs.settings.in_force import with_settings
from batchjobs.settings.model_config import attention_heads, kv_bytes_per_token
from batchjobs.settings.sizing import Facts, decide
from batchjobs.settings.weights import FOUR_BITS, ONLINE, Weights
from schemas.description import Alternative, CapacityDescription
from schemas.job import JobSpec
from schemas.summary import Decision

_HIGHEST = 0.95  # of a GPU's memory: the rest is for the driver and for what else comes and goes
_FEW = 16  # sequences at a time: a GPU has hardly anything to do
_RECOMMENDED = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")

Unknown = dict[str, str]


def describe_capacity(facts: Facts) -> tuple[CapacityDescription, Unknown]:
    """The capacity, and why each part is null that is null."""
    if facts.job.engine.kind == "echo":
        return CapacityDescription(how=_sentence(facts.capacity.why)), {"capacity": facts.capacity.why}
    unknown = dict(_unknown(facts))
    alternatives = _alternatives(facts)
    found = CapacityDescription(
        device=facts.device.name,
        device_memory_bytes=facts.device.memory_bytes,
        weights_bytes=facts.own_weights,
        kv_bytes_per_token=facts.kv.per_token,
        kv_cache_tokens=facts.capacity.tokens,
        max_concurrent_sequences=_sequences(facts),
        recommended=_recommended(facts),
        advice=_advice(facts, alternatives),
        alternatives=alternatives,
        how=_sentence(facts.capacity.why),
    )
    if found.advice is None:
        unknown["capacity.advice"] = facts.capacity.why
    return found, unknown


def _unknown(facts: Facts) -> Iterator[tuple[str, str]]:
    assert facts.job.model is not None
    none = "no row was looked at that can be generated"
    if facts.device.memory_bytes is None:
        yield "capacity.device_memory_bytes", f"the memory of this device ({facts.device.name}) is not known"
    if facts.own_weights is None:
        yield "capacity.weights_bytes", f"the weights of {facts.job.model.name} are not on this machine, or not whole"
    if facts.kv.per_token is None:
        yield "capacity.kv_bytes_per_token", facts.kv.why
    if facts.capacity.tokens is None:
        yield "capacity.kv_cache_tokens", facts.capacity.why
    if _sequences(facts) is None:
        yield "capacity.max_concurrent_sequences", facts.capacity.why if facts.sample.totals else none
    if not facts.sample.totals:
        yield "capacity.recommended", none


def _sequences(facts: Facts) -> int | None:
    return facts.capacity.sequences(facts.sample.p95()) if facts.sample.totals else None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _recommended(facts: Facts) -> dict[str, Decision]:
    """What the job would be given if it left all of it open, whatever it sets."""
    assert facts.job.model is not None
    if not facts.sample.totals:
        return {}
    engine = facts.job.engine.model_copy(update={"max_num_seqs": "auto", "max_num_batched_tokens": "auto"})
    model = facts.job.model.model_copy(update={"max_model_len": "auto"})
    open_job = facts.job.model_copy(update={"engine": engine, "model": model})
    decided = decide(replace(facts, job=open_job))
    found = {name: decided[name] for name in _RECOMMENDED}
    return {**found, "gpu_memory_utilization": _utilization(facts)}


def _utilization(facts: Facts) -> Decision:
    """The job's own or vLLM's, unless only a higher one makes it fit."""
    job, own = facts.job, utilization(facts.job)
    if fixed_room(job, facts.device) is not None:
        return Decision(value=None, reason="The size of the KV cache is set, so it does not count.")
    if facts.capacity.tokens is None or facts.device.kind != "gpu":
        return Decision(value=None, reason=f"{own:.0%} of the memory is what the engine takes.")
    if _fits(facts) is False and own < _HIGHEST:
        more = _variant(facts, with_settings(job, {"gpu_memory_utilization": _HIGHEST}), facts.weights)
        if _fits(more):
            return Decision(value=_HIGHEST, reason=f"With {own:.0%} the longest row does not fit.")
    return Decision(value=own, reason=f"{facts.capacity.tokens:,} tokens of KV cache.")


def _needed(facts: Facts) -> int | None:
    """Tokens of context that an engine must be able to hold: vLLM refuses to start with less."""
    assert facts.job.model is not None
    asked = facts.job.model.max_model_len
    if isinstance(asked, int):
        return asked
    return (facts.sample.longest or None) if asked == "auto" else facts.max_len


def _fits(facts: Facts) -> bool | None:
    tokens, needed = facts.capacity.tokens, _needed(facts)
    if tokens is None:
        return None
    return tokens > 0 if needed is None else tokens >= needed


def _variant(facts: Facts, job: JobSpec, weights: Weights | None) -> Facts:
    """The same with other settings or weights. What an engine reported of its size does not hold, its reserve does."""
    kv = kv_bytes_per_token(facts.config, job)
    changed = replace(facts, job=job, kv=kv, weights=weights)
    learnt = Learnt(reserve_bytes=facts.learnt.reserve_bytes)
    return replace(changed, capacity=kv_capacity(job, facts.device, kv, changed.own_weights, learnt=learnt))


def _alternatives(facts: Facts) -> list[Alternative]:
    return [_alternative(change, variant) for change, variant in _variants(facts)]


def _variants(facts: Facts) -> Iterator[tuple[str, Facts]]:
    yield "now", facts
    job, weights = facts.in_force or facts.job, facts.weights
    assert job.model is not None
    if facts.device.kind != "gpu":
        return
    if (job.model.kv_cache_dtype or "auto") == "auto" and facts.kv.per_token is not None:
        small = job.model.model_copy(update={"kv_cache_dtype": "fp8"})
        yield "kv_cache_dtype: fp8", _variant(facts, job.model_copy(update={"model": small}), weights)
    if weights is not None and weights.linear and not weights.is_quantised:
        small = job.model.model_copy(update={"quantization": "fp8"})
        yield (
            "quantization: fp8",
            _variant(facts, job.model_copy(update={"model": small}), weights.quantised(ONLINE["fp8"])),
        )
        yield "a checkpoint in AWQ or GPTQ, 4 bits", _variant(facts, job, weights.quantised(FOUR_BITS))
    size = 2 * job.engine.tensor_parallel_size
    if (attention_heads(facts.config) or 0) % size == 0 and facts.config is not None:
        yield (
            f"tensor_parallel_size: {size}",
            _variant(facts, with_settings(job, {"tensor_parallel_size": size}), weights),
        )


def _alternative(change: str, facts: Facts) -> Alternative:
    return Alternative(
        change=change,
        weights_bytes=facts.own_weights,
        kv_bytes_per_token=facts.kv.per_token,
        kv_cache_tokens=facts.capacity.tokens,
        max_concurrent_sequences=_sequences(facts),
        fits=_fits(facts),
    )


def _advice(facts: Facts, alternatives: list[Alternative]) -> str | None:
    """Whether quantising or tensor parallelism is needed; None if nobody can tell."""
    now, others = alternatives[0], alternatives[1:]
    if now.fits is None:
        return None
    helps = [other for other in others if other.fits]
    if not now.fits:
        needed = _needed(facts)
        context = f"a context of {needed:,} tokens" if needed is not None else "any KV cache"
        why = f"The KV cache holds {now.kv_cache_tokens:,} tokens, which is too few for {context}."
        shorter = " A shorter max_model_len (see the recommended one) may do." if now.kv_cache_tokens else ""
        enough = ", ".join(other.change for other in helps)
        return f"{why}{shorter} " + (f"What would fit: {enough}." if enough else "No alternative below fits either.")
    sequences = now.max_concurrent_sequences
    if sequences is None or sequences >= min(_FEW, max(1, facts.rows)):
        many = "" if sequences is None else f", and {sequences:,} sequences at a time"
        return f"It fits{many}: neither quantising nor tensor parallelism is needed."
    more = max(helps, key=lambda other: other.max_concurrent_sequences or 0, default=None)
    best = f" {more.change} would hold {more.max_concurrent_sequences:,}." if more is not None else ""
    return f"It fits, but only {sequences:,} sequences at a time, which leaves the device idle.{best}"
