"""A run waits for its input as long as its job file says, and ends clearly."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import InputMissing
from batchjobs.fingerprint import identity
from batchjobs.spec import load_job, parse_job
from batchjobs.supervision.arrival import what_is_missing
from schemas.job import InputSpec, JobSpec, ReadySpec
from tests.conftest import MakeJob, batchjobs, read_output, run_here, text_table, write_spec


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with 10 rows in two files."""
    folder = tmp_path / "lake"
    write(folder, "a.parquet", 4)
    write(folder, "b.parquet", 6)
    return folder


def write(folder: Path, name: str, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(text_table(rows), folder / name)


def missing(path: str | Path | list[str], **ready: Any) -> str:
    found = InputSpec(path=path if isinstance(path, list) else str(path))
    return what_is_missing(found, ReadySpec(**ready))


@contextmanager
def arriving(when: Callable[[], bool], action: Callable[[], object]) -> Iterator[None]:
    """Do something in the background as soon as something is true."""

    def act() -> None:
        deadline = time.monotonic() + 60
        while not when() and time.monotonic() < deadline:
            time.sleep(0.05)
        action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_marker_is_looked_for_in_the_folder_of_the_input(lake: Path) -> None:
    inputs = [str(lake), f"{lake}/*.parquet", f"{lake}/a.parquet"]
    for path in inputs:
        assert missing(path, marker="_SUCCESS") == f"{lake}/_SUCCESS is not there"
    (lake / "_SUCCESS").touch()
    assert [missing(path, marker="_SUCCESS") for path in inputs] == ["", "", ""]


def test_each_of_several_inputs_needs_the_marker(lake: Path, tmp_path: Path) -> None:
    write(tmp_path / "pond", "a.parquet", 1)
    (lake / "_SUCCESS").touch()
    assert missing([str(lake), f"{tmp_path}/pond"], marker="_SUCCESS") == f"{tmp_path}/pond/_SUCCESS is not there"


def test_a_marker_may_lie_somewhere_else(lake: Path, tmp_path: Path) -> None:
    done = tmp_path / "flags" / "done"
    assert missing(lake, marker=str(done)) == f"{done} is not there"
    done.parent.mkdir()
    done.touch()
    assert missing(lake, marker=str(done)) == ""


def test_rows_are_counted_before_they_are_enough(lake: Path) -> None:
    assert missing(lake, min_rows=11) == "there are 10 rows in 2 files, at least 11 rows are to come"
    assert missing(lake, min_rows=10) == ""


def test_a_file_that_is_still_being_written_is_not_there_yet(lake: Path) -> None:
    whole = (lake / "b.parquet").read_bytes()
    (lake / "b.parquet").write_bytes(whole[: len(whole) // 2])
    assert f"Input {lake}/b.parquet cannot be used" in missing(lake, min_rows=1)


def test_an_input_that_does_not_exist_is_missing(tmp_path: Path) -> None:
    assert missing(tmp_path / "none").startswith(f"Input {tmp_path}/none does not exist")
    (tmp_path / "empty").mkdir()
    assert "has nothing to read" in missing(tmp_path / "empty")


def test_on_s3_each_look_is_at_the_store_itself(s3: dict[str, Any]) -> None:
    fs = fsspec.filesystem("s3", **s3)
    spec = InputSpec(path="s3://lake/docs/dt=2026-11-28", storage_options=s3)
    ready = ReadySpec(marker="_SUCCESS", min_rows=3)
    other = fsspec.filesystem("s3", skip_instance_cache=True, **s3)  # another writer: its news is in no cache of ours
    assert "does not exist" in what_is_missing(spec, ready)
    with other.open("lake/docs/dt=2026-11-28/a.parquet", "wb") as stream:
        pq.write_table(text_table(2), stream)
    assert what_is_missing(spec, ready) == "s3://lake/docs/dt=2026-11-28/_SUCCESS is not there"
    fs.ls("lake/docs/dt=2026-11-28")
    other.pipe_file("lake/docs/dt=2026-11-28/_SUCCESS", b"")
    assert what_is_missing(spec, ready) == "there are 2 rows in 1 file, at least 3 rows are to come"
    with other.open("lake/docs/dt=2026-11-28/b.parquet", "wb") as stream:
        pq.write_table(text_table(2), stream)
    assert what_is_missing(spec, ready) == ""


def test_a_run_begins_when_the_marker_arrives(
    make_job: MakeJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(input={"ready": {"marker": "_SUCCESS", "wait": "50s"}})
    waits = lambda: "Waiting for the input" in caplog.text  # noqa: E731
    with caplog.at_level(logging.INFO), arriving(waits, (tmp_path / "data/_SUCCESS").touch):
        summary = run_here(job)
    assert (summary.state, summary.rows.ok) == ("completed", 10)
    assert f"at most: {tmp_path}/data/_SUCCESS is not there." in caplog.text
    assert "The input is complete, after " in caplog.text
    assert "input" not in summary.message


def test_a_folder_that_appears_is_enough_if_nothing_else_is_asked_for(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(input={"path": str(tmp_path / "late"), "ready": {"wait": "50s"}})
    with arriving(lambda: True, lambda: (time.sleep(0.5), write(tmp_path / "late", "a.parquet", 3))):
        assert run_here(job).rows.ok == 3


def test_what_does_not_come_in_time_is_refused_and_named(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(input={"ready": {"marker": "_SUCCESS", "min_rows": 5, "wait": "1s"}})
    refused = batchjobs("run", "--no-prefect", write_spec(job, tmp_path / "job.yaml"))
    assert refused.returncode == 2
    assert f"The input is not complete: {tmp_path}/data/_SUCCESS is not there. Waited 1" in refused.stderr
    assert "(input.ready.wait is 1s)" in refused.stderr
    assert "Nothing was changed; run the same command again to go on." in refused.stderr
    assert not Path(job.output.path).exists()


def test_without_a_wait_it_is_refused_at_once(make_job: MakeJob) -> None:
    with pytest.raises(InputMissing, match=r"nor does a run without input\.ready\.wait \(such as 2h\)"):
        run_here(make_job(input={"ready": {"min_rows": 11}}))


def test_no_run_waits_beyond_its_deadline(make_job: MakeJob) -> None:
    job = make_job(input={"ready": {"min_rows": 11, "wait": "5h"}}, run={"deadline": "1s"})
    with pytest.raises(InputMissing, match="at least 11 rows are to come"):
        run_here(job)


def test_a_deadline_counts_from_before_the_wait(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(input={"ready": {"marker": "_SUCCESS", "wait": "50s"}}, run={"deadline": "30s", "drain_seconds": 1})
    began = time.monotonic()
    late = lambda: time.monotonic() - began > 2  # noqa: E731
    with arriving(late, (tmp_path / "data/_SUCCESS").touch):
        summary = run_here(job)
    assert (summary.state, summary.seconds.wall < time.monotonic() - began - 2) == ("completed", True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_at_once(make_job: MakeJob, tmp_path: Path, number: signal.Signals) -> None:
    job = make_job(input={"ready": {"marker": "_SUCCESS", "wait": "5h"}})
    file = write_spec(job, tmp_path / "job.yaml")
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--no-prefect", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stderr is not None
        assert "Waiting for the input" in process.stderr.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 3
    assert "Stopped while it waited for the input" in err
    assert "Traceback" not in err
    assert not Path(job.output.path).exists()


def test_a_job_that_was_begun_goes_on_though_its_marker_is_gone(make_job: MakeJob, tmp_path: Path) -> None:
    ready = {"marker": "_SUCCESS"}
    data = text_table(10)
    stops = {"kind": "echo", "echo": {"raise_rows": [9]}}
    first = make_job(data, input={"ready": ready}, engine=stops, run={"max_restarts": 0})
    (tmp_path / "data/_SUCCESS").touch()
    assert run_here(first).state == "failed"
    (tmp_path / "data/_SUCCESS").unlink()
    job = make_job(data, input={"ready": ready})
    assert run_here(job).state == "completed"
    assert read_output(job).num_rows == 10


def test_what_it_waits_for_is_not_part_of_what_it_is(make_job: MakeJob) -> None:
    waits = make_job(input={"ready": {"marker": "_SUCCESS", "min_rows": 5, "wait": "2h"}})
    assert identity(waits) == identity(make_job())


@pytest.mark.parametrize(
    ("ready", "message"),
    [
        ({"wait": "soon"}, r"input\.ready\.wait: found 'soon'; allowed: a duration \(7h30m, 45m, 90s\)"),
        ({"marker_file": "x"}, r"input\.ready\.marker_file: unknown key; did you mean marker\?"),
        ({"min_rows": 0}, r"input\.ready\.min_rows: found 0"),
    ],
)
def test_a_bad_key_is_named(make_job: MakeJob, ready: dict[str, Any], message: str) -> None:
    spec: dict[str, Any] = make_job().model_dump(mode="json", exclude_defaults=True)
    spec["input"]["ready"] = ready
    with pytest.raises(Exception, match=message):
        parse_job(spec)


def test_a_relative_marker_counts_from_the_job_file(make_job: MakeJob, tmp_path: Path) -> None:
    def loaded(marker: str) -> JobSpec:
        return load_job(write_spec(make_job(input={"ready": {"marker": marker}}), tmp_path / "job.yaml"))

    for marker, found in (("flags/done", f"{tmp_path}/flags/done"), ("_SUCCESS", "_SUCCESS"), ("s3://x/y", "s3://x/y")):
        ready = loaded(marker).input.ready
        assert ready is not None
        assert ready.marker == found
