"""Where replicas run: one per GPU or group of GPUs, or each on cores of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchjobs.errors import SpecError
from batchjobs.settings import devices
from batchjobs.settings.devices import gpu_placements, named_devices, placements, visible_gpus
from schemas.job import JobSpec
from tests.conftest import MakeJob


def gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, divided: bool = False) -> None:
    """A machine with so many GPUs, as nvidia-smi tells; `divided`: each into two parts. vLLM is not built for CPU."""
    lines = []
    for n in range(count):
        lines.append(f"GPU {n}: NVIDIA H200 (UUID: GPU-{n}a-11)")
        lines += [f"  MIG 3g.71gb     Device  {m}: (UUID: MIG-{n}-{m})" for m in range(2) if divided]
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(lines) + "\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "built_for_cpu", lambda job: False)


def vllm_job(make_job: MakeJob, **engine: object) -> JobSpec:
    return make_job(engine={"kind": "vllm", **engine}, model={"name": "m"})


def seen(job: JobSpec) -> list[str | None]:
    return [place.environment.get("CUDA_VISIBLE_DEVICES") for place in placements(job)]


def test_auto_is_one_replica_per_gpu(make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(tmp_path, monkeypatch, 4)
    assert seen(vllm_job(make_job)) == ["0", "1", "2", "3"]
    assert seen(vllm_job(make_job, tensor_parallel_size=2)) == ["0,1", "2,3"]
    assert seen(vllm_job(make_job, replicas=2)) == ["0", "1"]
    assert seen(vllm_job(make_job, replicas=1)) == ["0"]
    assert seen(vllm_job(make_job, replicas=1, tensor_parallel_size=4)) == [None]


def test_only_gpus_that_this_process_may_use_count(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8a")
    assert [gpu.name for gpu in visible_gpus(vllm_job(make_job))] == ["3", "GPU-8a"]
    assert seen(vllm_job(make_job)) == ["3", "GPU-8a"]
    assert seen(vllm_job(make_job, env={"CUDA_VISIBLE_DEVICES": "1,2"})) == ["1", "2"]


def test_a_gpu_is_known_by_its_uuid_however_it_is_called(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-1a,2,GPU-2a-11,MIG-7")
    found = [(gpu.name, gpu.key) for gpu in visible_gpus(vllm_job(make_job))]
    assert found == [("2", "GPU-2a-11"), ("GPU-1a", "GPU-1a-11"), ("MIG-7", "MIG-7")]


def test_of_a_divided_gpu_the_part_counts_that_is_used(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 2, divided=True)
    assert [gpu.key for gpu in visible_gpus(vllm_job(make_job))] == ["MIG-0-0", "MIG-1-0"]


def test_one_replica_may_run_on_any_gpu_and_numbers_them_as_nvidia_smi_does(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 5)
    places = gpu_placements(vllm_job(make_job, replicas=1, tensor_parallel_size=2))
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in places] == ["0,1", "2,3"]
    assert {place.environment["CUDA_DEVICE_ORDER"] for place in places} == {"PCI_BUS_ID"}
    assert [[gpu.key for gpu in place.gpus] for place in places] == [
        ["GPU-0a-11", "GPU-1a-11"],
        ["GPU-2a-11", "GPU-3a-11"],
    ]


def test_the_echo_engine_and_a_vllm_for_cpu_use_no_gpu(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 2)
    assert visible_gpus(make_job()) == []
    monkeypatch.setattr(devices, "built_for_cpu", lambda job: True)
    assert visible_gpus(vllm_job(make_job)) == []


def test_devices_may_be_named_for_a_machine_or_for_a_job(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_devices(make_job()) is None
    monkeypatch.setenv("BATCHJOBS_DEVICES", "amd0, amd1,amd0")
    assert [device.key for device in named_devices(make_job()) or []] == ["amd0", "amd1"]
    assert named_devices(make_job(engine={"env": {"BATCHJOBS_DEVICES": ""}})) == []


def test_more_replicas_than_gpus_are_refused(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 2)
    with pytest.raises(SpecError, match="engine.replicas: found 3 with 1 GPUs each; allowed: at most 2"):
        placements(vllm_job(make_job, replicas=3))


def test_without_gpus_auto_is_one_replica_and_more_share_cores_and_memory(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4})
    assert [place.cores for place in placements(vllm_job(make_job))] == [()]
    two = placements(vllm_job(make_job, replicas=2))
    assert [place.cores for place in two] == [(0, 1), (2, 3, 4)]
    assert [place.settings for place in two] == [{"gpu_memory_utilization": 0.46}] * 2
    explicit = placements(vllm_job(make_job, replicas=2, kv_cache_memory_bytes=2**28))
    assert [place.settings for place in explicit] == [{}, {}]
