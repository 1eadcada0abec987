"""Two jobs for one device, as people run them: one after the other, and the second is told who holds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from batchjobs.errors import DeviceBusy, OutputError
from batchjobs.settings.devices import OneDevice
from batchjobs.status import describe, read_status
from batchjobs.supervision import device_wait
from batchjobs.supervision.device_lock import DeviceLocks, take_groups
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, run_here, snapshot, text_table, write_spec
from tests.processes import kill_all_of, replicas_of, start, wait_for_parts
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _one_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with one logical device, whose locks are this test's."""
    monkeypatch.setenv("BATCHJOBS_DEVICES", "gpu0")
    monkeypatch.setenv("BATCHJOBS_LOCKS", str(tmp_path / "locks"))


def job_named(make_job: MakeJob, tmp_path: Path, name: str, rows: int = 60, **sections: Any) -> JobSpec:
    """Of 60 rows: about 12 seconds of work. All jobs of a test have one dataset."""
    sections = {"engine": {"echo": {"tokens_per_s": 35}}, **sections}
    return make_job(text_table(rows), name=name, output={"path": str(tmp_path / name)}, **sections)


@contextmanager
def running(job: JobSpec, file: Path) -> Iterator[subprocess.Popen[str]]:
    """The job in a process of its own, from its first part on."""
    process = start(write_spec(job, file))
    try:
        wait_for_parts(job, 1)
        yield process
    finally:
        kill_all_of(job, process)


def is_waiting(job: JobSpec) -> bool:
    with suppress(OutputError):  # nothing is written before it waits
        return bool(read_status(job.output.path)["state"] == "waiting")
    return False


@contextmanager
def held() -> Iterator[DeviceLocks]:
    """The device in the hands of somebody in this process."""
    me = {"job": "other", "user": "anna", "pid": 1, "host": "box", "since": "2026-11-30T02:00:00+00:00", "output": "/o"}
    _, locks = take_groups([[OneDevice("gpu0", "gpu0")]], 1, me)
    assert isinstance(locks, DeviceLocks), locks.text
    try:
        yield locks
    finally:
        locks.release()


def test_the_second_job_waits_says_for_whom_and_then_runs(make_job: MakeJob, tmp_path: Path) -> None:
    first, second = (job_named(make_job, tmp_path, name) for name in ("first", "second"))
    with running(first, tmp_path / "1.yaml") as one:
        two = start(write_spec(second, tmp_path / "2.yaml"))
        eventually(lambda: is_waiting(second), bool, 60)
        assert "gpu0 is held by job first of " in describe(read_status(second.output.path))
        assert not (Path(second.output.path) / "_batchjobs/plan.json").exists()
        one.communicate(timeout=60)
        assert one.returncode == 0
        out, err = two.communicate(timeout=60)
    summary = json.loads(out)
    assert (two.returncode, summary["state"], summary["rows"]["ok"]) == (0, "completed", 60)
    assert "gpu0 is held by job first of " in err
    assert f"(process {one.pid} on " in err
    assert "Waiting until" in err
    seconds = summary["seconds"]
    assert seconds["waiting"] > 2
    parts = ("plan", "waiting", "engine_start", "generating", "finish")
    assert sum(seconds[name] for name in parts) == pytest.approx(seconds["wall"], abs=0.1)
    assert summary["engine_seconds"]["held"] <= seconds["wall"] - seconds["waiting"]
    assert [attempt["attempt"] for attempt in summary["attempts"]] == [1]
    assert not (Path(second.output.path) / "_batchjobs/waiting.json").exists()


def test_a_job_that_is_not_to_wait_is_refused_with_the_holder_and_the_next_command(
    make_job: MakeJob, tmp_path: Path
) -> None:
    job = job_named(make_job, tmp_path, "hasty", run={"device_wait": "0s", "shard_rows": 4})
    with held():
        refused = batchjobs("run", "--no-prefect", write_spec(job, tmp_path / "job.yaml"))
    assert refused.returncode == 2
    assert "gpu0 is held by job other of anna (process 1 on box, since " in refused.stderr
    assert "Nothing was changed." in refused.stderr
    assert "batchjobs status /o" in refused.stderr
    with pytest.raises(OutputError, match="is not an output of batchjobs"):
        read_status(job.output.path)


def test_a_refused_job_leaves_what_earlier_runs_have_left(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_named(make_job, tmp_path, "again", rows=8, engine={}, run={"device_wait": "0s", "shard_rows": 4})
    run_here(job)
    (Path(job.output.path) / "part-000001.parquet").unlink()
    before = snapshot(job.output.path)
    monkeypatch.setattr(device_wait, "_AT_ONCE_S", 0.0)
    with held(), pytest.raises(DeviceBusy):
        run_here(job)
    after = snapshot(job.output.path)
    assert {name: after.get(name) for name in before if not name.endswith("lock")} == {
        name: stamp for name, stamp in before.items() if not name.endswith("lock")
    }
    assert set(after) == set(before)
    assert run_here(job).state == "completed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_waiting_ends_it_at_once(make_job: MakeJob, tmp_path: Path, number: signal.Signals) -> None:
    job = job_named(make_job, tmp_path, "stopped")
    with held():
        process = start(write_spec(job, tmp_path / "job.yaml"))
        eventually(lambda: is_waiting(job), bool, 60)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    summary = json.loads(out)
    assert (process.returncode, summary["state"], summary["attempts"]) == (3, "partial", []), err
    assert "run the same command again" in summary["message"]
    assert summary["engine_seconds"]["held"] == 0


def test_a_deadline_ends_the_waiting(make_job: MakeJob, tmp_path: Path) -> None:
    run = {"deadline": "12s", "drain_seconds": 1, "shard_rows": 4}
    job = job_named(make_job, tmp_path, "late", run=run)
    with held():
        summary = run_here(job)
    assert (summary.state, summary.attempts) == ("partial", [])
    assert "Stopped for run.deadline" in summary.message


def test_after_kill_9_of_everything_the_device_is_free(make_job: MakeJob, tmp_path: Path) -> None:
    first = job_named(make_job, tmp_path, "first")
    with running(first, tmp_path / "job.yaml") as process:
        kill_all_of(first, process)
        with held():
            pass


@pytest.mark.parametrize("frozen", [False, True])
def test_after_kill_9_of_the_dispatcher_the_next_job_gets_the_device_when_the_replica_is_gone(
    make_job: MakeJob, tmp_path: Path, frozen: bool
) -> None:
    first = job_named(make_job, tmp_path, "first")
    second = job_named(make_job, tmp_path, "second", engine={})  # the same dataset, at once
    with running(first, tmp_path / "1.yaml") as process:
        (replica,) = set(replicas_of(first)) - {process.pid}
        if frozen:
            os.kill(replica, signal.SIGSTOP)
        process.kill()
        process.wait()
        assert run_here(second).state == "completed"
        assert replicas_of(first) == []


def test_a_job_of_another_device_does_not_wait(make_job: MakeJob, tmp_path: Path) -> None:
    env = {"BATCHJOBS_DEVICES": "gpu1"}
    job = job_named(make_job, tmp_path, "beside", rows=8, engine={"env": env})
    with held():
        assert run_here(job).seconds.waiting == 0


def test_without_a_gpu_and_without_a_name_nothing_is_locked(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATCHJOBS_DEVICES")
    assert run_here(job_named(make_job, tmp_path, "cpu", rows=8, engine={})).state == "completed"
    assert not (tmp_path / "locks").exists()


def test_a_trial_waits_for_the_device_too(make_job: MakeJob, tmp_path: Path) -> None:
    job = job_named(make_job, tmp_path, "trial", engine={}, run={"device_wait": "0s", "shard_rows": 4})
    file = write_spec(job, tmp_path / "job.yaml")
    with held():
        for command in (["try", file], ["tune", file, "--max-num-seqs", "2"]):
            refused = batchjobs(*command)
            assert (refused.returncode, "gpu0 is held by job other of anna" in refused.stderr) == (2, True), refused
