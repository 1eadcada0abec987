"""Bytes of weights and KV cache: how many tokens the KV cache will hold, from what is known before the engine starts.

The sources, best first: what an earlier run's engine reported; the size that is set, divided by the bytes of a token;
the memory that vLLM will find, less weights and a reserve. Unknown stays unknown.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from batchjobs.settings.device import GIB, Device
from batchjobs.settings.model_config import KvBytes
from schemas.job import JobSpec

_UTILIZATION = 0.92  # vLLM's default, of a GPU's memory and of a CPU's alike
# What a GPU holds besides weights and KV cache (context, activations, CUDA graphs): 1 GiB and 3 % of its memory. Rough;
# from the first run on, what the engine reported counts.
_GPU_RESERVE, _GPU_RESERVE_SHARE = GIB, 0.03
_CPU_RESERVE = GIB  # of the worker's process
_BLOCK = {"gpu": 16, "cpu": 128, "other": 16}  # tokens; vLLM's default block size


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
    job: JobSpec, device: Device, kv: KvBytes, weights: int | None, reported: int | None = None
) -> Capacity:
    """The capacity of one engine with the memory settings of `job`.

    `weights` are bytes of all weights, `reported` is what an earlier run's engine said.
    """
    block = int(job.engine.extra.get("block_size") or _BLOCK[device.kind])
    if reported is not None:
        return Capacity(reported, f"{reported:,} tokens of KV cache, as an earlier run's engine reported", block)
    blocks = job.engine.extra.get("num_gpu_blocks_override")
    if blocks is not None:
        return Capacity(int(blocks) * block, f"{blocks:,} blocks of {block} tokens, as engine.extra says", block)
    if kv.per_token is None:
        return Capacity(None, kv.why, block)
    room, source = _room(job, device, weights)
    if room is None:
        return Capacity(None, source, block)
    tokens = max(0, room) // (kv.per_token * block) * block
    why = f"{tokens:,} tokens of KV cache in {source} at {kv.per_token:,} bytes each"
    return Capacity(tokens, why, block)


def _room(job: JobSpec, device: Device, weights: int | None) -> tuple[int | None, str]:
    """Bytes for the KV cache on one device, and how they come about; None with what is missing."""
    env_gib = {**os.environ, **job.engine.env}.get("VLLM_CPU_KVCACHE_SPACE", "")
    if device.kind == "cpu" and env_gib.isdigit():  # vLLM takes it before kv_cache_memory_bytes
        return int(env_gib) * GIB, f"{env_gib} GiB (VLLM_CPU_KVCACHE_SPACE)"
    if job.engine.kv_cache_memory_bytes is not None:
        return job.engine.kv_cache_memory_bytes, f"{gib(job.engine.kv_cache_memory_bytes)} (kv_cache_memory_bytes)"
    if not device.memory_bytes:
        return None, f"the memory that vLLM will find on this {device.name} is not known"
    if weights is None:
        return None, "the size of the model's weights is not known before it is downloaded"
    share = job.engine.gpu_memory_utilization or _UTILIZATION
    reserve = _CPU_RESERVE if device.kind == "cpu" else _GPU_RESERVE + int(_GPU_RESERVE_SHARE * device.memory_bytes)
    own = weights // job.engine.tensor_parallel_size
    source = f"{share:.0%} of {gib(device.memory_bytes)} less {gib(own)} of weights and {gib(reserve)} in reserve"
    return int(device.memory_bytes * share) - own - reserve, source


def gib(amount: int) -> str:
    """Bytes for people."""
    return f"{amount / GIB:.3g} GiB"


def weights_bytes(job: JobSpec) -> int | None:
    """Bytes of the weights as vLLM loads them; None for a model that is not a local folder, or not a whole one.

    What is stored as float32 takes half, unless `model.dtype` asks for it. Weights that are quantised only while they
    are loaded count in full.
    """
    assert job.model is not None
    folder = Path(job.model.name)
    if not folder.is_dir():
        return None
    try:
        names = _weight_files(folder)
        keep = job.model.dtype in ("float32", "float")
        sizes = [_tensor_bytes(folder / name, keep) for name in names]
    except (OSError, ValueError, KeyError):
        return None
    return sum(sizes) or sum(file.stat().st_size for file in folder.glob("*.bin")) or None


def _weight_files(folder: Path) -> set[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return set(json.loads(index.read_text())["weight_map"].values())
    return {file.name for file in folder.glob("*.safetensors") if not file.name.startswith("consolidated")}


def _tensor_bytes(file: Path, keep_float32: bool) -> int:
    """From the header of a safetensors file: 8 bytes with its length, then JSON with the offsets of each tensor."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > file.stat().st_size:
            raise ValueError(f"{file} is no safetensors file")
        header = json.loads(stream.read(length))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    return sum(_loaded_bytes(tensor["data_offsets"], tensor["dtype"], keep_float32) for tensor in tensors)


def _loaded_bytes(offsets: list[int], dtype: str, keep_float32: bool) -> int:
    return (offsets[1] - offsets[0]) // (2 if dtype == "F32" and not keep_float32 else 1)
