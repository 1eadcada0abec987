"""The device that engines would run on, as this machine shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchjobs.settings import device
from batchjobs.settings.device import find_device
from batchjobs.spec import parse_job
from schemas.job import JobSpec


def job(**engine: str) -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
        "model": {"name": "m"}, "engine": engine, "output": {"path": "y"},
    })  # fmt: skip


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Put an `nvidia-smi` first on the path that prints these lines."""

    def put(lines: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        device._first_gpu.cache_clear()

    yield put
    device._first_gpu.cache_clear()


def test_the_first_gpu_counts(smi: Callable[[str], None]) -> None:
    smi("NVIDIA H200, 143771\\nNVIDIA H200, 143771\\n")
    found = find_device(job(python="/an/environment/with/vllm"))
    assert (found.kind, found.name, found.memory_bytes) == ("gpu", "NVIDIA H200", 143_771 * 2**20)


def test_a_gpu_that_does_not_tell_its_memory_is_a_gpu_all_the_same(smi: Callable[[str], None]) -> None:
    smi("NVIDIA GB10, [N/A]\\n")
    found = find_device(job(python="/an/environment/with/vllm"))
    assert (found.kind, found.name, found.memory_bytes) == ("gpu", "NVIDIA GB10", None)


def test_a_vllm_built_for_cpu_uses_no_gpu(smi: Callable[[str], None]) -> None:
    smi("NVIDIA H200, 143771\\n")
    found = find_device(job())
    assert (found.kind, found.name) == ("cpu", "cpu")
    assert found.cores >= 1


def test_without_a_gpu_it_is_the_cpu(smi: Callable[[str], None]) -> None:
    smi("")
    assert find_device(job(python="/an/environment/with/vllm")).kind == "cpu"
