"""A real job, killed while it uploads a large part: nothing half-visible, and another process takes over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import fsspec
import pyarrow as pa
import pytest

from batchjobs.leftovers import mark_of, marked
from batchjobs.storage import lease
from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.output import LEASE
from batchjobs.storage.store import open_store
from batchjobs.verify import verify_output
from tests.conftest import MakeJob, run_here, write_spec
from tests.watched_s3 import Asked, WatchedS3

MIB = 2**20


def test_a_job_that_is_killed_amid_the_upload_of_a_part_leaves_none_and_is_taken_over(
    lake: WatchedS3, make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = Random(1)
    table = pa.table({"text": ["a", "b"], "fat": [noise.randbytes(55 * MIB) for _ in range(2)]})
    job = make_job(table, output={"path": "s3://lake/out"}, run={"shard_rows": 2})
    uploading, killed = threading.Event(), threading.Event()

    def wait_for_the_kill(asked: Asked) -> None:
        if asked.operation == "part" and lake.count("part")["part"] > 1:
            uploading.set()
            killed.wait(60)

    lake.forget()
    lake.seen = wait_for_the_kill
    spec = write_spec(job, tmp_path / "job.yaml")
    command = [
        sys.executable,
        "-m",
        "batchjobs.cli",
        "run",
        "--no-prefect",
        str(spec),
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert uploading.wait(60)
    for pid in [first.pid, *marked(mark_of(job.output.path))]:
        os.kill(pid, signal.SIGKILL)
    first.wait()
    killed.set()
    lake.seen = lambda asked: None

    store = open_store(job.output.path)
    assert committed_shards(store) == set()
    assert store.names(LEASE) == ["000001.json"]
    left = fsspec.filesystem("s3").call_s3("list_multipart_uploads", Bucket="lake")["Uploads"]
    assert [upload["Key"] for upload in left] == ["out/part-000000.parquet"], "for the bucket's lifecycle rule"

    monkeypatch.setattr(lease, "TAKEOVER_S", 0.5)
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    summary = run_here(job)
    assert (summary.state, summary.rows.total) == ("completed", 2)
    assert [attempt.cause for attempt in summary.attempts] == ["lost", "done"]
    assert verify_output(job.output.path).complete
