"""One runner per output on an object store: refused while the holder lives, its successor once it is dead."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import LeaseLost, OutputError, StorageFailed
from batchjobs.leftovers import mark_of, marked
from batchjobs.status import read_status
from batchjobs.storage import lease, lock
from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.output import LEASE
from batchjobs.storage.store import Store, open_store
from batchjobs.verify import verify_output
from schemas.job import JobSpec
from tests.conftest import MakeJob, run_here, text_table, write_spec
from tests.faulty_objects import FaultyObjects

_FIRST = f"{LEASE}/000001.json"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty object store, and periods short enough for tests."""
    monkeypatch.setattr(lease, "RENEW_S", 0.02)
    monkeypatch.setattr(lease, "TAKEOVER_S", 0.5)
    monkeypatch.setattr(lease, "LOOK_S", 0.02)
    FaultyObjects.store.clear()
    return open_store("faulty://out")


def die(holder: lock.OutputLock) -> None:
    """No more signs of life, and no farewell."""
    assert holder._lease is not None
    holder._lease._ended.set()


def test_a_second_runner_is_refused_as_soon_as_the_holder_gives_a_sign_of_life(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TAKEOVER_S", 1000)
    held = lock.acquire(store)
    with pytest.raises(OutputError, match=f"in use by process {os.getpid()} on "):
        lock.acquire(store)
    assert (held.descriptor, held.epoch) == (None, 1)
    held.release()


def test_a_released_output_is_free_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "TAKEOVER_S", 1000)
    for epoch in (1, 2, 3):
        held = lock.acquire(store)
        assert held.epoch == epoch
        held.release()
        held.release()
    assert store.names(LEASE) == ["000003.json"]


def test_a_dead_holder_is_succeeded_once_its_lease_has_stood_still(store: Store) -> None:
    die(lock.acquire(store))
    began = time.monotonic()
    held = lock.acquire(store)
    assert time.monotonic() - began >= lease.TAKEOVER_S
    assert held.epoch == 2
    held.release()


def test_of_two_that_wait_for_a_dead_holder_one_goes_on_and_one_is_refused(store: Store) -> None:
    die(lock.acquire(store))
    held: list[lock.OutputLock] = []
    refused: list[OutputError] = []

    def try_it() -> None:
        try:
            held.append(lock.acquire(store))
        except OutputError as error:
            refused.append(error)

    threads = [threading.Thread(target=try_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 1)
    held[0].release()


def test_a_holder_that_was_succeeded_writes_and_deletes_nothing_more(store: Store) -> None:
    store.publish("mine", b"before")
    old = lock.acquire(store)
    fenced = lease.fenced(store, old.epoch)
    assert fenced.publish("part", b"in time")
    die(old)
    new = lock.acquire(store)
    for harm in (lambda: fenced.publish("late", b""), lambda: fenced.delete(["mine"])):
        with pytest.raises(LeaseLost, match=r"faulty://out was taken over by process \d+ on .*writes nothing more"):
            harm()
    assert store.names() == ["_batchjobs", "mine", "part"]
    assert fenced.read("mine") == b"before"
    new.release()


def test_a_late_farewell_of_an_old_holder_does_not_free_the_new_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = lock.acquire(store)
    die(old)
    new = lock.acquire(store)
    assert old._lease is not None
    old._lease._ended.clear()  # it wakes up
    old.release()
    assert store.names(LEASE) == ["000002.json"]
    monkeypatch.setattr(lease, "TAKEOVER_S", 1000)
    with pytest.raises(OutputError):
        lock.acquire(store)
    new.release()


def test_a_waiting_runner_that_was_stopped_itself_looks_once_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = lock.acquire(store)
    clock = itertools.count(0, 1000)
    monkeypatch.setattr(lease.time, "monotonic", lambda: next(clock))
    real, reads = store.read, itertools.count()

    def read(name: str) -> bytes | None:
        if next(reads) == 1:  # long stopped after its first look
            time.sleep(1.0)
        return real(name)

    monkeypatch.setattr(store, "read", read)
    with pytest.raises(OutputError):
        lease.take(store)
    held.release()


def test_a_lease_that_cannot_be_read_is_succeeded_too(store: Store) -> None:
    store.publish(_FIRST, b"rubbish")
    held = lock.acquire(store)
    assert held.epoch == 2
    held.release()


def test_a_holder_outlives_a_short_outage_of_the_storage(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = lock.acquire(store)
    before = json.loads(store.read(_FIRST) or b"")["counter"]

    def down(*_: Any, **__: Any) -> bytes:
        raise StorageFailed("cannot read: gone")

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", down)
        time.sleep(0.2)
    time.sleep(0.2)
    assert "could not be renewed: cannot read: gone" in caplog.text
    assert json.loads(store.read(_FIRST) or b"")["counter"] > before
    with monkeypatch.context() as patch:
        patch.setattr(store, "read", down)
        held.release()  # nothing to do about it: the next runner has to wait


def test_status_tells_a_held_output_from_one_that_was_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "TAKEOVER_S", 60)
    assert not lease.is_held(store)
    held = lock.acquire(store)
    assert lease.is_held(store)
    held.release()
    assert not lease.is_held(store)
    state = {"renewed": "2020-01-01T00:00:00+00:00", "released": False}
    store.publish(f"{LEASE}/000009.json", json.dumps(state).encode())
    assert not lease.is_held(store)


def s3_job(options: dict[str, Any], make_job: MakeJob, **echo: Any) -> JobSpec:
    """Sixty rows on local disk, fifteen parts on S3."""
    return make_job(
        text_table(60),
        output={"path": "s3://lake/leased", "storage_options": options},
        engine={"kind": "echo", "max_num_seqs": 2, "echo": echo},
    )


def start(file: Path) -> subprocess.Popen[str]:
    """The real command, with signs of life as often as this test needs them."""
    code = "from batchjobs import cli; from batchjobs.storage import lease; lease.RENEW_S = 0.2; cli.main()"
    command = [sys.executable, "-c", code, "run", "--no-prefect", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_stopped_runner_that_wakes_up_after_its_successor_has_finished_does_no_harm(
    s3: dict[str, Any], make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TAKEOVER_S", 60.0)
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    monkeypatch.setattr(lock, "remove_marked", lambda mark: 0)  # the two runners are on different machines
    job = s3_job(s3, make_job, tokens_per_s=30)
    first = start(write_spec(job, tmp_path / "job.yaml"))
    store = open_store(job.output.path, s3)
    wait_for(lambda: len(committed_shards(store)) >= 1)
    assert read_status(job.output.path)["state"] == "running"
    with pytest.raises(OutputError, match=f"in use by process {first.pid} on "):
        run_here(job)

    everything = [first.pid, *marked(mark_of(job.output.path))]
    assert len(everything) == 2
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(lease, "TAKEOVER_S", 1.0)
    summary = run_here(s3_job(s3, make_job))
    assert (summary.state, summary.rows.total) == ("completed", 60)
    assert summary.rows.generated < 60
    parts = {name: store.read(name) for name in store.names() if name != "_batchjobs"}

    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    _, err = first.communicate(timeout=30)
    assert first.returncode == 1
    assert "was taken over by process" in err
    assert "Traceback" not in err
    assert {name: store.read(name) for name in store.names() if name != "_batchjobs"} == parts
    assert verify_output(job.output.path).complete
    tables = [pq.read_table(pa.BufferReader(data)) for name, data in sorted(parts.items()) if name.startswith("part")]
    assert pa.concat_tables(tables)["output"].to_pylist() == [f"text {n}" for n in range(60)]
    assert read_status(job.output.path)["state"] == "completed"


def wait_for(fact: Any) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.1)
