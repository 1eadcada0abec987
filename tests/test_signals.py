"""Runs that are killed or stopped: nothing is lost, nothing is left behind, the same command goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, read_output, summary_of, text_table, write_spec
from tests.processes import kill_all_of, replicas_of, start, wait_for_parts
from tests.waiting import eventually


def slow_job(make_job: MakeJob) -> JobSpec:
    """About 12 seconds of work: 60 rows of about 7 tokens at 35 tokens/s."""
    return make_job(text_table(60), engine={"echo": {"tokens_per_s": 35}})


def test_after_kill_9_of_everything_the_same_command_goes_on(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    file = write_spec(job, tmp_path / "job.yaml")
    running = start(file)
    wait_for_parts(job, 2)
    kill_all_of(job, running)
    done = committed_shards(open_store(job.output.path))
    stamps = {n: os.stat(f"{job.output.path}/part-{n:06d}.parquet").st_mtime_ns for n in done}
    (tmp_path / "out/_batchjobs/tmp/leftover.parquet").write_bytes(b"half")
    assert "interrupted" in batchjobs("status", job.output.path).stdout

    fast = write_spec(make_job(text_table(60)), tmp_path / "job.yaml")
    summary = summary_of(batchjobs("run", "--no-prefect", "--json", fast))
    assert summary["state"] == "completed"
    assert summary["rows"]["reused"] >= 4 * len(done)
    assert summary["rows"]["generated"] == 60 - summary["rows"]["reused"]
    assert [attempt["cause"] for attempt in summary["attempts"]] == ["lost", "done"]
    assert summary["attempts"][0]["held_s"] > 0
    assert stamps == {n: os.stat(f"{job.output.path}/part-{n:06d}.parquet").st_mtime_ns for n in done}
    assert list((tmp_path / "out/_batchjobs/tmp").iterdir()) == []
    assert read_output(job)["output"].to_pylist() == [f"text {n}" for n in range(60)]
    assert batchjobs("verify", job.output.path).returncode == 0


def test_a_replica_does_not_outlive_its_killed_dispatcher(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    wait_for_parts(job, 1)
    assert len(replicas_of(job)) == 2
    running.kill()
    running.wait()
    eventually(lambda: replicas_of(job), lambda left: not left, 10)


def test_a_frozen_replica_of_a_killed_dispatcher_does_not_hold_the_output(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    wait_for_parts(job, 1)
    (replica,) = set(replicas_of(job)) - {running.pid}
    os.kill(replica, signal.SIGSTOP)
    running.kill()
    running.wait()
    summary = summary_of(
        batchjobs("run", "--no-prefect", "--json", write_spec(make_job(text_table(60)), tmp_path / "job.yaml"))
    )
    assert summary["state"] == "completed"
    assert replicas_of(job) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_drains_and_leaves_a_partial_job(make_job: MakeJob, tmp_path: Path, number: signal.Signals) -> None:
    job = slow_job(make_job)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    wait_for_parts(job, 1)
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 3, err
    assert '"state": "partial"' in out
    assert "run the same command again" in out
    assert replicas_of(job) == []
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_a_second_signal_ends_at_once(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(60), engine={"echo": {"hang_rows": [0, 1, 2, 3, 4, 5, 6, 7]}})
    running = start(write_spec(job, tmp_path / "job.yaml"))
    eventually(lambda: replicas_of(job), lambda found: len(found) == 2)
    time.sleep(1)
    running.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=10) != 0
    eventually(lambda: replicas_of(job), lambda left: not left, 10)


def test_a_second_runner_is_refused_while_the_first_runs(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    file = write_spec(job, tmp_path / "job.yaml")
    running = start(file)
    wait_for_parts(job, 1)
    status = batchjobs("status", job.output.path)
    assert "running" in status.stdout
    second = batchjobs("run", "--no-prefect", file)
    assert second.returncode == 2
    assert "in use by process" in second.stderr
    running.kill()
    running.wait()


def test_parts_of_a_killed_run_are_whole(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    wait_for_parts(job, 3)
    running.kill()
    running.wait()
    for shard in committed_shards(open_store(job.output.path)):
        table: pa.Table = pq.read_table(f"{job.output.path}/part-{shard:06d}.parquet", page_checksum_verification=True)
        assert table.num_rows == 4
