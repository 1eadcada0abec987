"""The real command through Prefect: stopped by signals, and left alone by its API."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.job import JobSpec
from tests.conftest import MakeJob, text_table, write_spec
from tests.flows.seen import artifacts_of, run_named, tasks_of
from tests.flows.server import own_server
from tests.waiting import eventually

pytestmark = pytest.mark.prefect


@contextmanager
def started(job: JobSpec, file: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`batchjobs run --prefect` in a process group of its own, from the moment that it has committed a shard."""
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--prefect", "--json", str(write_spec(job, file))]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    try:
        eventually(lambda: list(Path(job.output.path).glob("part-*")) or process.poll() is not None, bool, seconds=90)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_sigterm_drains_and_leaves_a_partial_run(make_job: MakeJob, tmp_path: Path, prefect_api: str) -> None:
    job = make_job(text_table(80), name="stopped", engine={"echo": {"tokens_per_s": 40}})
    with started(job, tmp_path / "job.yaml", PREFECT_API_URL=prefect_api) as process:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    summary = json.loads(out)
    assert (process.returncode, summary["state"]) == (3, "partial")
    run = run_named("stopped")
    assert run.state_name == "Partial"
    assert run.state is not None
    assert run.state.message == summary["message"]
    assert set(tasks_of(run)) == {"plan", "run", "summarise"}
    assert set(artifacts_of(run)) == {"progress", "markdown", "table"}


def test_ctrl_c_stops_the_job_but_not_the_embedded_server_that_is_told_of_it(
    make_job: MakeJob, tmp_path: Path, prefect_home: Path
) -> None:
    job = make_job(text_table(80), name="interrupted", engine={"echo": {"tokens_per_s": 40}})
    with started(job, tmp_path / "job.yaml") as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everything of the group, the server too
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "Traceback" not in err
    with sqlite3.connect(prefect_home / "prefect.db") as database:
        assert database.execute("select name, state_name from flow_run").fetchall() == [("interrupted", "Partial")]


def test_an_api_that_goes_away_costs_one_warning_and_no_row(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(100), name="alone", engine={"echo": {"tokens_per_s": 80}})
    with (
        own_server(tmp_path / "server") as server,
        started(job, tmp_path / "job.yaml", PREFECT_API_URL=server.url) as run,
    ):
        server.stop(signal.SIGKILL)
        out, err = run.communicate(timeout=90)
        ended = time.time()
    summary = json.loads(out)
    assert (run.returncode, summary["state"], summary["rows"]["ok"]) == (0, "completed", 100)
    assert err.count("does not answer") == 1
    assert err.count("Prefect was not told how the job ended") == 1
    assert "Traceback" not in err
    written = (Path(job.output.path) / "_batchjobs/summary.json").stat().st_mtime
    assert ended - written < 30, "the end of a job must not hang on an API that is gone"
