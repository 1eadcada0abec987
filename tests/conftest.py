"""Jobs for tests: small datasets, the echo engine, and the real command as people call it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from batchjobs.job import run_job
from batchjobs.spec import parse_job
from batchjobs.supervision.progress import Silent
from schemas.job import JobSpec
from schemas.summary import Summary
from tests.watched_s3 import WatchedS3

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

MakeJob = Callable[..., JobSpec]


@pytest.fixture(autouse=True)
def _nothing_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test runs against a Prefect API that the user has configured, or learns from jobs that the user has run."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("BATCHJOBS_DEVICES", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path_factory.getbasetemp() / "prefect-home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def serve_s3(port: int = 0) -> Any:
    """Start an S3 over HTTP; one that is stopped and started again on its port still has its objects."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a failing test shows every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    return server


@contextmanager
def knows_s3(server: Any) -> Iterator[str]:
    """The server's URL; this process and its children know it, and nobody has an older one in a cache."""
    from s3fs import S3FileSystem

    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        S3FileSystem.clear_instance_cache()
        yield f"http://{host}:{port}"
    S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """Storage options of an S3 with the empty bucket `lake`."""
    server = serve_s3()
    with knows_s3(server) as url:
        empty_lake(fsspec.filesystem("s3", endpoint_url=url))
        yield {"endpoint_url": url}
    server.stop()


@pytest.fixture(scope="module")
def lake() -> Iterator[WatchedS3]:
    """An S3 that counts and misbehaves, with the empty bucket `lake`, known from the environment alone."""
    server = WatchedS3()
    with knows_s3(server):
        empty_lake(fsspec.filesystem("s3"))
        yield server
    server.stop()


def empty_lake(fs: Any) -> None:
    """Make the bucket, empty: servers of one process share their objects."""
    if fs.exists("lake"):
        fs.rm("lake", recursive=True)
    fs.mkdir("lake")


def text_table(rows: int, first: int = 0) -> pa.Table:
    """Rows with an id and a short text."""
    numbers = range(first, first + rows)
    return pa.table({"id": [f"id-{n}" for n in numbers], "text": [f"text {n}" for n in numbers]})


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """Write tables as `data/NN.parquet` and return an echo job over them; sections are merged into its spec."""

    def make(*tables: pa.Table, **sections: Any) -> JobSpec:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for number, table in enumerate(tables or (text_table(10),)):
            pq.write_table(table, folder / f"{number:02d}.parquet")
        spec: dict[str, Any] = {
            "name": "test",
            "input": {"path": str(folder)},
            "prompt": {"column": "text"},
            "sampling": {"max_tokens": 100},
            "engine": {"kind": "echo", "max_num_seqs": 2},
            "output": {"path": str(tmp_path / "out")},
            "run": {"shard_rows": 4},
        }
        for name, section in sections.items():
            if isinstance(section, dict) and name != "prompt":
                spec[name] = {**spec.get(name, {}), **section}
            else:
                spec[name] = section
        return parse_job(spec)

    return make


def run_here(job: JobSpec, **options: Any) -> Summary:
    """Run a job in this process (its replica is a process of its own)."""
    return run_job(job, Silent(), **options)


def read_output(job: JobSpec, **options: Any) -> pa.Table:
    """All parts, as Spark and pyarrow read the folder."""
    return pq.read_table(job.output.path, **options)


def snapshot(folder: str) -> dict[str, tuple[int, int]]:
    """Time and size of every file, to see whether anything was changed."""
    return {str(f): (f.stat().st_mtime_ns, f.stat().st_size) for f in Path(folder).rglob("*") if f.is_file()}


def write_spec(job: JobSpec, file: Path) -> Path:
    """The job as a job file."""
    file.write_text(yaml.safe_dump(job.model_dump(mode="json", exclude_defaults=True)))
    return file


def batchjobs(
    *arguments: str | Path, timeout: float = 120, stop_when: Callable[[], bool] | None = None
) -> subprocess.CompletedProcess[str]:
    """The real command, as a child process; with `stop_when`, it gets a SIGTERM when that is true."""
    command = [sys.executable, "-m", "batchjobs.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if stop_when is not None:
            while process.poll() is None and not stop_when():
                time.sleep(0.1)
            process.terminate()
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def summary_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The summary that a `run --json` printed."""
    found: dict[str, Any] = json.loads(result.stdout)
    return found
