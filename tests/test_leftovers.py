"""What an earlier life has left behind: found by its mark, and gone for good when it is said to be gone."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from batchjobs.leftovers import ATTEMPT, MARK, end_life, mark_of, marked, remove_marked
from tests.waiting import eventually

# Its first thread ends and is a zombie; another one still holds the lock. So it is with a killed process for moments.
_HOLDER = """
import ctypes, fcntl, sys, threading, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_life_ends_with_what_has_left_its_group_and_no_other_life_with_it() -> None:
    def started(attempt: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARK: "output", ATTEMPT: str(attempt)}
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        return subprocess.Popen(command, env=environment, start_new_session=True)

    leader, outside, other = started(1), started(1), started(2)
    while len(marked("output")) < 3:
        time.sleep(0.01)
    assert end_life(leader.pid, "output", 1) == 2
    assert (leader.wait(), outside.wait()) == (-9, -9)
    assert marked("output") == [other.pid]
    other.kill()
    other.wait()


def test_leftovers_of_an_earlier_life_are_found_by_their_mark(tmp_path: Path) -> None:
    mark = mark_of(str(tmp_path))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, MARK: mark})
    deadline = time.monotonic() + 5
    while marked(mark) != [child.pid]:
        assert time.monotonic() < deadline
    killer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    killer.wait()
    child_gone = remove_marked(mark)
    assert child_gone == 1
    assert child.wait() == -9
    assert marked(mark) == []


def test_a_process_of_which_one_thread_is_left_is_not_over_yet(tmp_path: Path) -> None:
    environment = {**os.environ, MARK: "threads", ATTEMPT: "1"}
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "lock")]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    eventually(lambda: psutil.Process(child.pid).status(), lambda status: status == psutil.STATUS_ZOMBIE)
    with (tmp_path / "lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert end_life(child.pid, "threads", 1) == 1
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is held
    assert child.wait() == -9
