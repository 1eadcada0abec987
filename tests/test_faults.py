"""Exhaustively: whatever happens to the storage, at whichever operation, the same command then goes on to the end."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, get_args

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import StorageFailed
from batchjobs.job import run_job
from batchjobs.replica import collect
from batchjobs.retry import retry_failed
from batchjobs.storage.checkpoint import committed_shards, part_name, read_commit
from batchjobs.storage.journal import fragment_results
from batchjobs.storage.output import JOURNAL, PROGRESS, SPEC, SUCCESS, read_plan
from batchjobs.storage.store import TMP, Store, open_store
from batchjobs.supervision.prepared import nothing_to_do
from batchjobs.supervision.progress import Silent
from batchjobs.verify import verify_output
from schemas.job import EchoSpec, JobSpec
from schemas.summary import Summary
from tests.conftest import MakeJob
from tests.faults import Crash, Faults, Kind
from tests.faulty_disk import faulty_disk
from tests.faulty_objects import FaultyObjects
from tests.one_process import in_one_process

_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of small files
_TIMES = ("attempt", "queue_s", "ttft_s", "tpot_s")  # columns that tell of the run, not of the answer
TEXTS = [None if n == 5 else f"text {n}" for n in range(12)]  # row 5 never reaches the engine

NewJob = Callable[[], JobSpec]
Run = Callable[[JobSpec], Summary]


@pytest.fixture(params=["local", "object"])
def new_job(request: pytest.FixtureRequest, make_job: MakeJob) -> Iterator[NewJob]:
    """A function that gives a job of three shards of four rows with an output and a state of its own, and empties the
    others."""
    job, numbers = make_job(pa.table({"text": TEXTS}), run={"max_error_rate": 0.1}), count()
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:

        def new() -> JobSpec:
            shutil.rmtree(f"{folder}/out", ignore_errors=True)
            FaultyObjects.store.clear()
            path = f"{folder}/out/{next(numbers)}" if request.param == "local" else f"faulty://out-{next(numbers)}"
            run = job.run.model_copy(update={"state": f"{path}-state"})  # what others have learnt is no job of ours
            return job.model_copy(update={"output": job.output.model_copy(update={"path": path}), "run": run})

        yield new


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "batchjobs")
    in_one_process(monkeypatch, tmp_path / "state")


def run_once(job: JobSpec) -> Summary:
    return run_job(job, Silent())


def retry_once(job: JobSpec) -> Summary:
    return retry_failed(job.output.path, [], Silent())


def answers(store: Store) -> pa.Table:
    parts = []
    for shard in sorted(committed_shards(store)):
        with store.open(part_name(shard)) as stream:
            parts.append(pq.ParquetFile(stream).read(use_threads=False))
    return pa.concat_tables(parts).drop_columns(_TIMES)


def disturbed(job: JobSpec, faults: Faults, run: Run = run_once) -> Summary | BaseException:
    """How a run under faults ended."""
    publish_part = collect.publish_part

    def publish(*arguments: Any) -> Any:
        commit = publish_part(*arguments)
        faults.committed.add(commit.shard)
        return commit

    with faulty_disk(faults), pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyObjects, "faults", faults)
        patch.setattr(collect, "publish_part", publish)
        try:
            return run(job)
        except (Crash, StorageFailed) as end:
            return end


def assert_nothing_is_half_visible(store: Store, told: set[int]) -> None:
    """What is there is whole, and what was said to be there is."""
    assert told <= committed_shards(store)
    for shard in committed_shards(store):
        read_commit(store, shard)
    for name in store.names(JOURNAL):
        fragment_results(store.read(f"{JOURNAL}/{name}") or b"")
    if SUCCESS in store.names():
        assert verify_output(store.url).complete


def assert_done(job: JobSpec, summary: Summary, expected: pa.Table) -> None:
    store = open_store(job.output.path)
    rows = summary.rows
    assert summary.state == "completed"
    assert rows.total == rows.ok + rows.error == rows.generated + rows.deduplicated + rows.reused + rows.rejected == 12
    assert verify_output(store.url).complete
    assert answers(store) == expected
    assert [store.names(JOURNAL), store.read(PROGRESS)] == [[], None]
    assert all(name.startswith(SUCCESS) for name in store.names(TMP)), "only the very last file may have left a trace"
    assert SUCCESS in store.names()
    plan = read_plan(store)
    assert plan is not None
    assert nothing_to_do(store, plan, job) == summary, "a third run changes nothing"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # so do threads of the dead end
@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_storage_operation_may_go_wrong(kind: Kind, new_job: NewJob) -> None:
    job = new_job()
    if kind == "power cut" and "://" in job.output.path:
        pytest.skip("an object store keeps what it has confirmed")
    undisturbed = Faults(kind)
    disturbed(job, undisturbed)
    expected = answers(open_store(job.output.path))
    for at in count(1):
        job, faults = new_job(), Faults(kind, at)
        ended = disturbed(job, faults)
        if faults.struck is None:
            break
        try:
            assert_ended_clearly(ended)
            assert_nothing_is_half_visible(open_store(job.output.path), faults.committed)
            assert_done(job, run_once(job), expected)
        except BaseException as problem:
            problem.add_note(f"{kind} at operation {at}, {faults.struck}; before it: {faults.operations[-4:-1]}")
            raise
    assert at > undisturbed.counted
    print(f"{kind}: {at - 1} operations, each followed by a run that completed")


def assert_ended_clearly(ended: Summary | BaseException) -> None:
    """A failure is either borne, or told: what failed, where, and how to go on. A crash tells nothing."""
    if isinstance(ended, Summary) and ended.state == "failed":
        assert "cannot " in ended.message
        assert "run the same command again to go on" in ended.message
    elif isinstance(ended, StorageFailed):
        assert "cannot " in str(ended)


def files_of(output: str) -> dict[str, bytes]:
    fs, root = fsspec.url_to_fs(output)
    return {path.removeprefix(root): fs.cat_file(path) for path in fs.find(root)}


def put_back(files: dict[str, bytes], output: str) -> None:
    fs, root = fsspec.url_to_fs(output)
    for name, data in files.items():
        fs.makedirs(fs._parent(root + name), exist_ok=True)
        fs.pipe_file(root + name, data)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_retry_may_be_killed_at_every_storage_operation(new_job: NewJob) -> None:
    """The engine fails on rows 2 and 9, and is repaired before the retry."""
    job = new_job()
    broken = job.model_copy(update={"engine": job.engine.model_copy(update={"echo": EchoSpec(error_rows=[2, 9])})})
    assert run_once(broken).rows.error == 3
    store = open_store(job.output.path)
    store.publish(SPEC, (store.read(SPEC) or b"").replace(b"- 2", b"- 200").replace(b"- 9", b"- 900"), replace=True)
    finished = files_of(job.output.path)
    undisturbed = retry_once(job)
    assert (undisturbed.state, undisturbed.rows.generated) == ("completed", 2)
    expected = answers(store)
    for at in count(1):
        job, faults = new_job(), Faults("crash", at)
        put_back(finished, job.output.path)
        disturbed(job, faults, retry_once)
        if faults.struck is None:
            break
        try:
            assert_nothing_is_half_visible(open_store(job.output.path), set(range(3)))
            assert_done(job, retry_once(job), expected)
        except BaseException as problem:
            problem.add_note(f"crash at operation {at}, {faults.struck}; before it: {faults.operations[-4:-1]}")
            raise
    print(f"retry: {at - 1} operations, each followed by a retry that completed")
