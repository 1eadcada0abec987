"""How many tokens the KV cache will hold, from what is known before the engine starts.

The sources, best first: what an earlier run's engine reported; the size that is set, divided by the bytes of a token;
the memory that vLLM will find, less weights and a reserve. Unknown stays unknown. What an engine reported with other
memory settings corrects the reserve, or the bytes of a token.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from batchjobs.settings.device import GIB, Device
from batchjobs.settings.model_config import KvBytes
from schemas.job import JobSpec

_UTILIZATION = 0.92  # vLLM's default, of a GPU's memory and of a CPU's alike
# What a GPU holds besides weights and KV cache (context, activations, CUDA graphs): 1 GiB and 3 % of its memory. Rough;
# from the first run on, what the engine left counts.
_GPU_RESERVE, _GPU_RESERVE_SHARE = GIB, 0.03
_CPU_RESERVE = GIB  # of the worker's process
_ROUNDING = 1e-9  # of a block: what was learnt of a token's bytes is a quotient, and may miss a whole block by that
_BLOCK = {"gpu": 16, "cpu": 128, "other": 16}  # tokens; vLLM's default block size


@dataclass(frozen=True)
class Learnt:
    """Of engines of one model and device, whatever their memory settings."""

    reserve_bytes: int | None = None  # besides weights and KV cache, of what the engine may use
    bytes_per_token: float | None = None  # of KV cache, where no formula says it, or says it wrongly


NOTHING = Learnt()


@dataclass(frozen=True)
class Capacity:
    """Tokens that the KV cache of one engine holds, or None if nobody knows; and whence, as part of a sentence."""

    tokens: int | None
    why: str
    block: int = 16  # tokens that are given out together

    def sequences(self, tokens: int) -> int | None:
        """How many sequences of so many tokens it holds."""
        return None if self.tokens is None else (self.tokens // self.block) // _cells(tokens, self.block)


def _cells(amount: int, size: int) -> int:
    return max(1, -(-amount // size))


def kv_capacity(
    job: JobSpec,
    device: Device,
    kv: KvBytes,
    weights: int | None,
    reported: int | None = None,
    learnt: Learnt = NOTHING,
) -> Capacity:
    """The capacity of one engine with the memory settings of `job`.

    `weights` are bytes on one device, `reported` is what an earlier run's engine said, `learnt` what engines of the
    same model and device with other memory settings have shown.
    """
    block = int(job.engine.extra.get("block_size") or _BLOCK[device.kind])
    if reported is not None:
        return Capacity(reported, f"{reported:,} tokens of KV cache, as an earlier run's engine reported", block)
    blocks = job.engine.extra.get("num_gpu_blocks_override")
    if blocks is not None:
        return Capacity(int(blocks) * block, f"{blocks:,} blocks of {block} tokens, as engine.extra says", block)
    per_token: float | None = learnt.bytes_per_token or kv.per_token
    if per_token is None:
        return Capacity(None, kv.why, block)
    room, source = room_of(job, device, weights, learnt.reserve_bytes)
    if room is None:
        return Capacity(None, source, block)
    tokens = int(max(0, room) / (per_token * block) + _ROUNDING) * block
    each = f"{per_token:,.0f} bytes each" + (
        ", as an earlier engine's report implies" if learnt.bytes_per_token else ""
    )
    return Capacity(tokens, f"{tokens:,} tokens of KV cache in {source} at {each}", block)


def room_of(job: JobSpec, device: Device, weights: int | None, reserve: int | None = None) -> tuple[int | None, str]:
    """Bytes for the KV cache on one device, and how they come about; None with what is missing."""
    fixed = fixed_room(job, device)
    if fixed is not None:
        return fixed
    if not device.memory_bytes:
        return None, f"the memory that vLLM will find on this {device.name} is not known"
    if weights is None:
        return None, "the size of the model's weights is not known before it is downloaded"
    own = budget(job, device) - weights
    why = "as an earlier engine needed" if reserve is not None else "in reserve"
    if reserve is None:
        cpu = device.kind == "cpu"
        reserve = _CPU_RESERVE if cpu else _GPU_RESERVE + int(_GPU_RESERVE_SHARE * device.memory_bytes)
    share = f"{utilization(job):.0%} of {gib(device.memory_bytes)}"
    return own - reserve, f"{share} less {gib(weights)} of weights and {gib(reserve)} {why}"


def fixed_room(job: JobSpec, device: Device) -> tuple[int, str] | None:
    """Bytes that the job itself gives to the KV cache, and by which setting."""
    env_gib = {**os.environ, **job.engine.env}.get("VLLM_CPU_KVCACHE_SPACE", "")
    if device.kind == "cpu" and env_gib.isdigit():  # vLLM takes it before kv_cache_memory_bytes
        return int(env_gib) * GIB, f"{env_gib} GiB (VLLM_CPU_KVCACHE_SPACE)"
    if job.engine.kv_cache_memory_bytes is not None:
        return job.engine.kv_cache_memory_bytes, f"{gib(job.engine.kv_cache_memory_bytes)} (kv_cache_memory_bytes)"
    return None


def utilization(job: JobSpec) -> float:
    """The share of the device's memory that the engine may use."""
    return job.engine.gpu_memory_utilization or _UTILIZATION


def budget(job: JobSpec, device: Device) -> int:
    """Bytes that the engine may use on one device, whose memory is known."""
    return int((device.memory_bytes or 0) * utilization(job))


def gib(amount: int) -> str:
    """Bytes for people."""
    return f"{amount / GIB:.3g} GiB"


def learn(
    job: JobSpec, device: Device, kv: KvBytes, weights: int | None, reported: int, earlier: Learnt = NOTHING
) -> Learnt:
    """What an engine's report says of engines with other memory settings."""
    if reported <= 0 or "num_gpu_blocks_override" in job.engine.extra:
        return earlier
    fixed = fixed_room(job, device)
    if fixed is not None:
        right = kv.per_token is not None and kv_capacity(job, device, kv, weights).tokens == reported
        return replace(earlier, bytes_per_token=None if right else fixed[0] / reported)
    if not device.memory_bytes or weights is None:
        return earlier
    per_token = earlier.bytes_per_token or kv.per_token
    if per_token is None:
        room, _ = room_of(job, device, weights)
        return replace(earlier, bytes_per_token=(room or 0) / reported or None)
    return replace(earlier, reserve_bytes=budget(job, device) - weights - int(reported * per_token))
