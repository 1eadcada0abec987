"""Bytes of a model's weights as vLLM loads them, from the headers of its safetensors files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from schemas.job import JobSpec

# What vLLM makes of a checkpoint of 16 bits while it loads it: bytes of one value of a linear layer, scales included.
ONLINE = {"fp8": 1.0, "fp8_per_tensor": 1.0, "fp8_per_block": 1.0, "fp8_per_channel": 1.0,
          "int8_per_channel_weight_only": 1.0, "mxfp8": 1.03125, "nvfp4_per_token": 0.5625}  # fmt: skip
# AWQ and GPTQ with groups of 128: half a byte, and for each group a scale of 2 bytes and half a byte of zero point.
FOUR_BITS = 0.5 + 2.5 / 128
_FLOATS = frozenset({"F16", "BF16", "F32", "F64"})
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|word_embeddings|embed_in|embed_out|wte|wpe|embed_positions|lm_head)\.")
_KV = re.compile(r"(^|\.)[kv]_proj\.")
_SCALE = re.compile(r"scale|zero|g_idx")
_LAYER = re.compile(r"(^|\.)(?:layers|h|blocks)\.(\d+)\.")


@dataclass(frozen=True)
class Weights:
    """Bytes by what becomes of them, and values ("parameters") of the linear layers."""

    linear: int = 0  # matrices of the layers, those of experts included: tensor parallelism divides them
    kv: int = 0  # of these, the projections to keys and values: a device has at least those of one head
    embedding: int = 0  # and the output layer: divided, never quantised while loading
    other: int = 0  # norms and biases: on every device
    linear_values: int = 0
    expert_values: int = 0  # of these, of experts
    is_quantised: bool = False  # in the checkpoint, or by `quantization`

    @property
    def total(self) -> int:
        """Of all of it, on one device."""
        return self.linear + self.embedding + self.other

    def of_one_device(self, tensor_parallel_size: int, kv_heads: int | None = None) -> int:
        """Bytes on each of so many devices."""
        kv_parts = min(tensor_parallel_size, kv_heads or tensor_parallel_size)
        divided = self.linear - self.kv + self.embedding
        return math.ceil(divided / tensor_parallel_size + self.kv / kv_parts) + self.other

    def quantised(self, bytes_per_value: float) -> Weights:
        """With linear layers of so many bytes per value."""
        share = bytes_per_value * self.linear_values / self.linear if self.linear else 1.0
        return replace(self, linear=int(self.linear * share), kv=int(self.kv * share), is_quantised=True)


def weights_of(job: JobSpec, config: Any | None = None) -> Weights | None:
    """What the job's engine will load, tensor parallelism aside; None if it is not on this machine, or not whole."""
    assert job.model is not None
    folder = model_folder(job)
    if folder is None:
        return None
    try:
        names = _weight_files(folder)
        found = _added_up(job, config, [tensor for name in names for tensor in _tensors(folder / name)])
    except (OSError, ValueError, KeyError):
        return None
    if not found.total:
        size = sum(file.stat().st_size for file in folder.glob("*.bin"))
        return Weights(linear=size, linear_values=size // 2) if size else None
    if job.model.quantization in ONLINE and not found.is_quantised:
        return found.quantised(ONLINE[job.model.quantization])
    return found


def model_folder(job: JobSpec) -> Path | None:
    """Where the model lies on this machine: its folder, or its snapshot in the hub's cache."""
    assert job.model is not None
    folder = Path(job.model.name)
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(job.model.name, "config.json", revision=job.model.revision)
    except (ImportError, ValueError, OSError):  # ValueError: a name that no hub has
        return None
    return Path(found).parent if isinstance(found, str) else None


def _weight_files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return sorted(file.name for file in folder.glob("*.safetensors") if not file.name.startswith("consolidated"))


def _tensors(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """From the header of a safetensors file: 8 bytes with its length, then JSON with type, shape, offsets of each."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > file.stat().st_size:
            raise ValueError(f"{file} is no safetensors file")
        header: dict[str, Any] = json.loads(stream.read(length))
    yield from ((name, tensor) for name, tensor in header.items() if name != "__metadata__")


def _added_up(job: JobSpec, config: Any | None, tensors: list[tuple[str, dict[str, Any]]]) -> Weights:
    assert job.model is not None
    text = config.get_text_config() if config is not None else None
    tied, layers = getattr(text, "tie_word_embeddings", False), getattr(text, "num_hidden_layers", None)
    quantization = getattr(config, "quantization_config", None)
    packed, float_bytes = _packed(quantization), 4 if job.model.dtype in ("float32", "float") else 2
    sums = dict.fromkeys(("linear", "kv", "embedding", "other", "linear_values", "expert_values"), 0)
    for name, tensor in tensors:
        layer = _LAYER.search(name)
        if (tied and "lm_head." in name) or (layer and layers is not None and int(layer[2]) >= layers):
            continue  # vLLM does not load a tied output layer twice, nor layers that only predict ahead
        begin, end = tensor["data_offsets"]
        values = math.prod(tensor["shape"])
        size = values * float_bytes if tensor["dtype"] in _FLOATS and quantization is None else end - begin
        if _EMBEDDING.search(name):
            sums["embedding"] += size
        elif len(tensor["shape"]) < 2 and not _SCALE.search(name):
            sums["other"] += size
        else:
            sums["linear"] += size
            sums["kv"] += size if _KV.search(name) else 0
            if not _SCALE.search(name):
                values *= packed if tensor["dtype"] in ("I32", "U8") else 1
                sums["linear_values"] += values
                sums["expert_values"] += values if "experts." in name and "shared_expert" not in name else 0
    return Weights(**sums, is_quantised=quantization is not None)


def _packed(quantization: Any) -> int:
    """How many values a packed integer of 32 bits holds (or 2 in a byte)."""
    bits = quantization.get("bits") if isinstance(quantization, dict) else getattr(quantization, "bits", None)
    return 32 // bits if bits in (2, 4, 8) else 8
