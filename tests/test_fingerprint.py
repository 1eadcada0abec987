"""What makes a job the same job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchjobs.fingerprint import differences, identity, model_fingerprint
from batchjobs.spec import parse_job
from schemas.job import JobSpec

BASE: dict[str, Any] = {
    "name": "t", "input": {"path": "x"}, "prompt": {"user": "{{ a }}"}, "sampling": {"max_tokens": 5},
    "model": {"name": "m"}, "output": {"path": "y"},
}  # fmt: skip


def job(**sections: Any) -> JobSpec:
    return parse_job({**BASE, **sections})


@pytest.mark.parametrize(
    "sections",
    [
        {"name": "other"},
        {"cost": {"usd_per_hour": 3}},
        {"run": {"order": "input", "max_error_rate": 1}},
        {"engine": {"max_num_seqs": 3, "tensor_parallel_size": 2, "python": "/x"}},
        {"engine": {"extra": {"download_dir": "/x"}}},
        {"model": {"name": "m", "max_model_len": "auto"}},
        {"input": {"path": "elsewhere", "storage_options": {"key": "1"}}},
        {"output": {"path": "elsewhere"}},
    ],
)
def test_what_cannot_change_a_result_is_no_part_of_it(sections: dict[str, Any]) -> None:
    assert differences(identity(job()), identity(job(**sections))) == []


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"prompt": {"user": "{{ b }}"}}, "prompt.user"),
        ({"prompt": {"user": "{{ a }}", "chat_template": "{{ messages }}"}}, "prompt.chat_template"),
        ({"sampling": {"max_tokens": 6}}, "sampling.max_tokens"),
        ({"model": {"name": "m", "dtype": "float32"}}, "model.dtype"),
        ({"model": {"name": "m", "max_model_len": 512}}, "model.max_model_len"),
        ({"engine": {"extra": {"speculative_config": {}}}}, "engine.extra.speculative_config"),
        ({"engine": {"kind": "echo"}}, "engine.kind"),
        ({"run": {"shard_rows": 5}}, "run.shard_rows"),
        ({"input": {"path": "x", "filter": "a > 1"}}, "input.filter"),
        ({"input": {"path": "x", "limit": 5}}, "input.limit"),
        ({"output": {"path": "y", "keep_columns": []}}, "output.keep_columns"),
    ],
)
def test_what_can_change_a_result_is_named_when_it_differs(sections: dict[str, Any], key: str) -> None:
    found = differences(identity(job()), identity(job(**sections)))
    assert any(line.startswith(f"{key}: was ") for line in found)


def a_model(folder: Path, weights: bytes = b"w" * 500_000) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_a_model_fine_tuned_in_place_is_another_model(tmp_path: Path) -> None:
    before = model_fingerprint(job(model={"name": str(a_model(tmp_path / "m"))}))
    a_model(tmp_path / "m", b"w" * 250_000 + b"v" * 250_000)
    after = model_fingerprint(job(model={"name": str(tmp_path / "m")}))
    assert [line.split(":")[0] for line in differences(before, after)] == ["model.safetensors"]


def test_a_copied_model_is_the_same_model(tmp_path: Path) -> None:
    one, two = (model_fingerprint(job(model={"name": str(a_model(tmp_path / n))})) for n in ("a", "b"))
    assert one == two


def test_a_hub_model_is_its_name_and_revision() -> None:
    assert model_fingerprint(job(model={"name": "org/m", "revision": "abc"})) == {"name": "org/m", "revision": "abc"}


def test_a_chat_template_in_a_file_counts_by_its_text(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages }}")
    in_file = identity(job(prompt={"user": "{{ a }}", "chat_template": str(file)}))
    assert in_file == identity(job(prompt={"user": "{{ a }}", "chat_template": "{{ messages }}"}))
