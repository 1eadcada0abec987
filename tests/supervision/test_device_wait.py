"""Which GPUs a run takes, and what it tells of those that are in use; nvidia-smi is a stand-in."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.errors import DeviceBusy
from batchjobs.job import prepare
from batchjobs.settings import devices
from batchjobs.settings.devices import OneDevice, Placement, placements
from batchjobs.storage.best_effort import BestEffort
from batchjobs.supervision import device_wait
from batchjobs.supervision.device_lock import DeviceLocks, record_of, take_groups
from batchjobs.supervision.device_wait import DeviceWait
from batchjobs.supervision.dispatcher import StopSignal
from batchjobs.supervision.prepared import PreparedJob
from tests.conftest import MakeJob

_SMI = """#!/bin/sh
case "$1" in
-L) for n in 0 1 2; do echo "GPU $n: NVIDIA H200 (UUID: GPU-${n}a)"; done ;;
*) echo "GPU-0a, 11, python, 4000"; echo "GPU-2a, 4711, /usr/bin/blender, 20000" ;;
esac
"""


@pytest.fixture(autouse=True)
def _three_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(_SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("BATCHJOBS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "built_for_cpu", lambda job: False)
    monkeypatch.setattr(device_wait, "_AT_ONCE_S", 0.0)


@pytest.fixture
def prepared(make_job: MakeJob) -> Iterator[PreparedJob]:
    """A job that waits for nobody, and that would run on one GPU."""
    prepared = prepare(make_job(run={"device_wait": "0s"}))
    prepared.resolved = make_job(engine={"kind": "vllm", "replicas": 1}, model={"name": "m"})
    yield prepared
    prepared.devices.release()
    prepared.lock.release()


def taken(prepared: PreparedJob) -> list[Placement]:
    wait = DeviceWait(prepared, StopSignal(), lambda lines: None, list, BestEffort())
    return wait.take(placements(prepared.resolved))


def held(*numbers: int) -> DeviceLocks:
    group = [OneDevice(str(n), f"GPU-{n}a") for n in numbers]
    _, locks = take_groups([group], 1, record_of("other", "/o"))
    assert isinstance(locks, DeviceLocks)
    return locks


def visible(places: list[Placement]) -> list[str | None]:
    return [place.environment.get("CUDA_VISIBLE_DEVICES") for place in places]


def test_a_job_that_may_choose_takes_a_gpu_that_is_free(prepared: PreparedJob) -> None:
    other = held(0)
    assert visible(taken(prepared)) == ["1"]
    other.release()


def test_a_job_that_needs_more_gpus_than_are_free_takes_none(prepared: PreparedJob) -> None:
    engine = prepared.resolved.engine.model_copy(update={"replicas": "auto"})
    prepared.resolved = prepared.resolved.model_copy(update={"engine": engine})
    other = held(1)
    with pytest.raises(DeviceBusy, match="GPU 1 is held by job other of "):
        taken(prepared)
    held(0, 2).release()
    other.release()
    assert visible(taken(prepared)) == ["0", "1", "2"]


def test_a_gpu_that_the_job_names_is_waited_for_though_others_are_free(
    prepared: PreparedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1a")
    other = held(1)
    with pytest.raises(DeviceBusy, match="GPU-1a is held by job other of "):
        taken(prepared)
    other.release()


def test_programs_that_know_no_lock_are_told(prepared: PreparedJob, caplog: pytest.LogCaptureFixture) -> None:
    other = held(0, 1)
    with caplog.at_level(logging.WARNING, "batchjobs"):
        assert visible(taken(prepared)) == ["2"]
    assert [record.getMessage() for record in caplog.records] == [
        "GPU 2 is also used by process 4711 (/usr/bin/blender, 20000 MiB), which is no job of batchjobs and not held "
        "up by its lock."
    ]
    other.release()
