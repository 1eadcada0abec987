"""Where replicas run: one per GPU or group of GPUs, or each on cores of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchjobs.errors import SpecError
from batchjobs.settings.devices import placements, visible_gpus
from schemas.job import JobSpec
from tests.conftest import MakeJob


def gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A machine with so many GPUs, as nvidia-smi tells."""
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\nfor i in " + " ".join(map(str, range(count))) + "; do echo $i; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def vllm_job(make_job: MakeJob, **engine: object) -> JobSpec:
    return make_job(engine={"kind": "vllm", **engine}, model={"name": "m"})


def seen(job: JobSpec) -> list[str | None]:
    return [place.environment.get("CUDA_VISIBLE_DEVICES") for place in placements(job)]


def test_auto_is_one_replica_per_gpu(make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(tmp_path, monkeypatch, 4)
    assert seen(vllm_job(make_job)) == ["0", "1", "2", "3"]
    assert seen(vllm_job(make_job, tensor_parallel_size=2)) == ["0,1", "2,3"]
    assert seen(vllm_job(make_job, replicas=2)) == ["0", "1"]
    assert seen(vllm_job(make_job, replicas=1)) == [None]


def test_only_gpus_that_this_process_may_use_count(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8a")
    assert visible_gpus() == ["3", "GPU-8a"]
    assert seen(vllm_job(make_job)) == ["3", "GPU-8a"]


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
