"""Bytes of weights as vLLM loads them, from the headers of safetensors files alone."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchjobs.settings.weights import FOUR_BITS, Weights, weights_of
from batchjobs.spec import parse_job
from schemas.job import JobSpec

_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1, "I32": 4}


def job(model: str | Path, **options: Any) -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
        "model": {"name": str(model), **options}, "output": {"path": "y"},
    })  # fmt: skip


def safetensors(file: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """A file with the header of these tensors (type and shape), and no data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text)


def config(**values: Any) -> Any:
    text = SimpleNamespace(tie_word_embeddings=False, num_hidden_layers=1, **values)
    return SimpleNamespace(get_text_config=lambda: text, quantization_config=values.get("quantization_config"))


LAYER = {
    "model.embed_tokens.weight": ("BF16", [10, 8]),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [8, 8]),
    "model.layers.0.self_attn.k_proj.weight": ("BF16", [4, 8]),
    "model.layers.0.self_attn.v_proj.weight": ("BF16", [4, 8]),
    "model.norm.weight": ("BF16", [8]),
    "lm_head.weight": ("BF16", [10, 8]),
}


def found(model: JobSpec, about: Any = None) -> Weights:
    weights = weights_of(model, about)
    assert weights is not None
    return weights


def test_each_tensor_counts_where_it_belongs(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", LAYER)
    weights = found(job(tmp_path), config())
    assert (weights.linear, weights.kv, weights.embedding, weights.other) == (256, 128, 320, 16)
    assert (weights.total, weights.linear_values) == (592, 128)


def test_only_the_files_of_the_index_count_and_no_consolidated_ones(tmp_path: Path) -> None:
    safetensors(tmp_path / "a.safetensors", {"x": ("BF16", [10, 5])})
    safetensors(tmp_path / "b.safetensors", {"z": ("I8", [7, 1])})
    safetensors(tmp_path / "consolidated.safetensors", {"x": ("BF16", [100, 5])})
    assert found(job(tmp_path)).total == 107
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    assert found(job(tmp_path)).total == 100


def test_what_is_stored_in_32_bits_is_loaded_in_16_unless_asked_for(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", {"x": ("F32", [10, 5])})
    assert found(job(tmp_path)).total == 100
    assert found(job(tmp_path, dtype="float32")).total == 200


def test_tied_output_layers_and_layers_that_predict_ahead_are_not_loaded(tmp_path: Path) -> None:
    ahead = {"model.layers.1.mlp.down_proj.weight": ("BF16", [50, 50])}
    safetensors(tmp_path / "model.safetensors", LAYER | ahead)
    tied = config()
    tied.get_text_config().tie_word_embeddings = True
    assert found(job(tmp_path), tied).total == 592 - 160


def test_tensor_parallelism_divides_all_but_norms_and_copies_a_single_kv_head(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", LAYER)
    weights = found(job(tmp_path), config())
    assert weights.of_one_device(1) == 592
    assert weights.of_one_device(2) == (128 + 128 + 320) // 2 + 16
    assert weights.of_one_device(2, kv_heads=1) == (128 + 320) // 2 + 128 + 16


def test_quantising_while_loading_halves_the_linear_layers_only(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", LAYER)
    weights = found(job(tmp_path, quantization="fp8"), config())
    assert (weights.linear, weights.embedding, weights.is_quantised) == (128, 320, True)


@pytest.mark.parametrize(
    ("quantization", "tensors", "values"),
    [
        ({"quant_method": "fp8"}, {"layers.0.x.weight": ("F8_E4M3", [8, 16])}, 128),
        ({"quant_method": "compressed-tensors"}, {"layers.0.x.weight": ("F8_E4M3", [8, 16])}, 128),
        ({"quant_method": "awq", "bits": 4}, {"layers.0.x.qweight": ("I32", [8, 2])}, 128),
        ({"quant_method": "gptq", "bits": 8}, {"layers.0.x.qweight": ("I32", [8, 4])}, 128),
    ],
)
def test_a_quantised_checkpoint_counts_as_it_is_stored(
    tmp_path: Path, quantization: dict[str, Any], tensors: dict[str, tuple[str, list[int]]], values: int
) -> None:
    scales = {"layers.0.x.weight_scale": ("F32", [8, 1])}
    safetensors(tmp_path / "model.safetensors", tensors | scales)
    weights = found(job(tmp_path), config(quantization_config=quantization))
    stored = sum(_BYTES[dtype] * shape[0] * shape[1] for dtype, shape in (tensors | scales).values())
    assert (weights.total, weights.linear_values, weights.is_quantised) == (stored, values, True)


def test_four_bits_are_a_little_more_than_a_quarter_of_sixteen() -> None:
    small = Weights(linear=2_000, linear_values=1_000, embedding=100).quantised(FOUR_BITS)
    assert (small.linear, small.embedding) == (519, 100)


def test_weights_that_are_not_here_or_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    assert weights_of(job("org/model")) is None
    assert weights_of(job(tmp_path)) is None
    (tmp_path / "a.safetensors").write_bytes(b"w" * 500)
    assert weights_of(job(tmp_path)) is None


def test_other_files_count_by_their_size_if_there_is_nothing_better(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"0" * 500)
    assert found(job(tmp_path)).total == 500
