"""One job per device: who gets it, who is told what, and what becomes of it when its holder dies."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.errors import Refused
from batchjobs.leftovers import DEVICES
from batchjobs.settings.devices import OneDevice
from batchjobs.supervision import device_folder, device_lock
from batchjobs.supervision.device_folder import lock_folder
from batchjobs.supervision.device_lock import Busy, DeviceLocks, record_of, take_groups
from tests.processes import is_alive

GPU = OneDevice("0", "GPU-0a")
OTHER = OneDevice("1", "GPU-1a")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of this test alone."""
    monkeypatch.setenv("BATCHJOBS_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "locks"


def take(*groups: list[OneDevice], count: int = 1) -> tuple[list[int], DeviceLocks | Busy]:
    return take_groups(groups, count, record_of("nightly", "/data/out"))


def held(*groups: list[OneDevice], count: int = 1) -> DeviceLocks:
    _, got = take(*groups, count=count)
    assert isinstance(got, DeviceLocks), got.text
    return got


def is_busy(*groups: list[OneDevice], count: int = 1) -> bool:
    _, got = take(*groups, count=count)
    if isinstance(got, DeviceLocks):
        got.release()
    return isinstance(got, Busy)


# Takes the GPU, starts an engine that inherits it, tells the process ids, and goes on for ever.
_HOLDER = """
import os, subprocess, sys, time
from batchjobs.leftovers import DEVICES
from batchjobs.settings.devices import OneDevice
from batchjobs.supervision.device_lock import record_of, take_groups
_, locks = take_groups([[OneDevice("0", "GPU-0a")]], 1, record_of("night", "/data/night"))
mark = locks.names if sys.argv[1] != "unknown" else ""
locks_of_it = locks.inherited if sys.argv[1] != "without a descriptor" else []
engine = subprocess.Popen(["sleep", "1000"], pass_fds=locks_of_it, env={**os.environ, DEVICES: mark})
print(engine.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def holder(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another job with the GPU, and its engine."""
    how = getattr(request, "param", "marked")
    process = subprocess.Popen([sys.executable, "-c", _HOLDER, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    engine = int(process.stdout.readline())
    yield process, engine
    process.kill()
    process.wait()
    if is_alive(engine):
        os.kill(engine, signal.SIGKILL)


def test_a_device_is_held_once_and_whoever_comes_is_told_by_whom() -> None:
    first = held([GPU])
    _, busy = take([GPU])
    assert isinstance(busy, Busy)
    assert busy.text.startswith(f"GPU 0 is held by job nightly of {device_lock._user()} (process {os.getpid()} on ")
    assert busy.text.endswith("output /data/out)")
    first.release()
    held([GPU]).release()


def test_the_first_free_group_is_chosen_and_a_group_is_taken_as_a_whole_or_not_at_all() -> None:
    first = held([GPU])
    chosen, second = take([GPU], [OTHER])
    assert isinstance(second, DeviceLocks)
    assert chosen == [1]
    first.release()
    assert is_busy([GPU, OTHER])  # the second is not free, so the first is let go
    assert is_busy([GPU], [OTHER], count=2)
    assert not is_busy([GPU])
    second.release()


@pytest.mark.parametrize("holder", ["marked", "without a descriptor"], indirect=True)
def test_a_stopped_holder_still_holds_and_what_is_left_of_a_killed_one_is_ended(
    holder: tuple[subprocess.Popen[str], int],
) -> None:
    process, engine = holder
    os.kill(engine, signal.SIGSTOP)  # it will not notice that its dispatcher is gone
    process.send_signal(signal.SIGSTOP)
    assert is_busy([GPU])
    assert is_alive(engine)
    process.kill()
    process.wait()
    assert not is_busy([GPU])
    assert not is_alive(engine)


@pytest.mark.parametrize("holder", ["unknown"], indirect=True)
def test_an_engine_that_cannot_be_found_holds_its_device_until_it_is_gone(
    holder: tuple[subprocess.Popen[str], int],
) -> None:
    process, engine = holder  # as one of another user's, whose environment nobody else may see
    process.kill()
    process.wait()
    _, busy = take([GPU])
    assert isinstance(busy, Busy)
    assert "is held by engines that are left of a killed run: job night of " in busy.text
    os.kill(engine, signal.SIGKILL)
    while is_alive(engine):  # the kernel is quick, but not at once
        pass
    assert not is_busy([GPU])


def test_an_engine_of_another_lock_folder_is_let_alone(
    holder: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BATCHJOBS_LOCKS", str(tmp_path / "elsewhere"))
    held([GPU]).release()
    assert is_alive(holder[1])


def test_replicas_carry_the_names_of_all_their_locks() -> None:
    locks = held([GPU, OTHER])
    assert len(locks.names.split(",")) == len(locks.inherited) == 2
    assert DEVICES.startswith("BATCHJOBS_")
    locks.release()
    assert locks.names == ""


def test_a_lock_file_that_a_clean_up_removes_in_between_is_not_the_one_that_is_held(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, removed = device_lock._opened, list[Path]()

    def removes_once(file: Path) -> int:
        descriptor = opened(file)
        if file not in removed:
            removed.append(file)
            file.unlink()
        return descriptor

    monkeypatch.setattr(device_lock, "_opened", removes_once)
    first = held([GPU])
    assert removed
    assert is_busy([GPU])
    first.release()


def test_the_next_holder_may_be_another_user(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        held([GPU]).release()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o666}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_lock_of_root_is_seen_and_then_taken_by_a_user(folder: Path, tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent != Path("/tmp") and parent.is_relative_to("/tmp"):
            parent.chmod(0o755)
    first = held([GPU])

    def as_nobody() -> str:
        """What a process of another user gets."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # a fork, because others may not read the interpreter of this one
            try:
                os.setgid(65534)
                os.setuid(65534)
                _, got = take([GPU])
                os.write(writing, (got.text if isinstance(got, Busy) else "taken").encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            return stream.read()

    assert f"job nightly of {device_lock._user()} (process {os.getpid()}" in as_nobody()
    first.release()
    assert as_nobody() == "taken"
    held([GPU]).release()


def test_the_folder_does_not_depend_on_who_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCHJOBS_LOCKS")
    run_lock, otherwise = tmp_path / "run-lock", tmp_path / "tmp"
    monkeypatch.setattr(device_folder, "_RUN_LOCK", run_lock)
    monkeypatch.setattr(device_folder, "_OTHERWISE", otherwise)
    run_lock.mkdir(mode=0o755)  # only root may write: so root does not, either
    assert lock_folder() == otherwise
    run_lock.chmod(0o1777)
    assert lock_folder() == run_lock / "batchjobs"
    run_lock.chmod(0o755)  # an administrator has made ours
    assert lock_folder() == run_lock / "batchjobs"


def test_a_folder_that_cannot_be_used_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BATCHJOBS_LOCKS", str(tmp_path / "file/locks"))
    with pytest.raises(Refused, match="Set BATCHJOBS_LOCKS to a folder of this machine"):
        take([GPU])
