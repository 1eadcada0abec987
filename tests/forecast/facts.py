"""What is known of a job, made up for tests of forecasts."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig

from batchjobs.engines.base import Request
from batchjobs.settings.capacity import kv_capacity
from batchjobs.settings.device import Device
from batchjobs.settings.gpus import find_gpu
from batchjobs.settings.model_config import kv_bytes_per_token
from batchjobs.settings.sample import Looked, Sample
from batchjobs.settings.sizing import Facts
from batchjobs.settings.speed import speed_of
from batchjobs.settings.weights import Weights
from batchjobs.spec import parse_job
from schemas.job import JobSpec

LLAMA_8B = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
# Meta-Llama-3.1-8B in bf16: 8.03 billion parameters, of which 1.05 are embeddings and the output layer.
WEIGHTS_8B = Weights(linear=13_960_000_000, kv=536_870_912, embedding=2_101_346_304, linear_values=6_980_000_000)


def job(kind: str = "vllm", max_model_len: int | str | None = 8_192, **sections: Any) -> JobSpec:
    return parse_job({
        "name": "nightly", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 100},
        "model": {"name": "m", "max_model_len": max_model_len}, "engine": {"kind": kind}, "output": {"path": "y"},
        **sections,
    })  # fmt: skip


def sample(places: int = 16, rows: int = 10, prompt: int = 200, max_tokens: int = 100) -> Sample:
    """Rows that are all alike."""
    found = Sample()
    for place in range(places):
        made = [Request(place * rows + row, [1] * prompt, max_tokens) for row in range(rows)]
        found.look(Looked(place, rows, 0, 4 * prompt * rows, list(made)))
    return found


def gpu(name: str) -> Device:
    known = find_gpu(name)
    assert known is not None
    return Device("gpu", known.name, known.memory_bytes)


def facts(spec: JobSpec | None = None, device: Device | None = None, **known: Any) -> Facts:
    """Of Llama-3.1-8B on an H100, 10,000 rows left."""
    spec, device = spec or job(), device or gpu("H100")
    config, weights = AutoConfig.for_model("llama", **LLAMA_8B), known.pop("weights", WEIGHTS_8B)
    kv = kv_bytes_per_token(config, spec)
    own = weights.of_one_device(spec.engine.tensor_parallel_size, 8) if weights is not None else None
    given: dict[str, Any] = {
        "capacity": kv_capacity(spec, device, kv, own), "max_len": 131_072, "plain": True,
        "speed": speed_of(spec, device, weights, None), "sample": sample(), "rows": 10_000, "config": config,
        "kv": kv, "weights": weights, "in_force": spec,
    }  # fmt: skip
    return Facts(spec, device, **(given | known))
