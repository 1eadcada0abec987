"""One runner per output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchjobs.errors import OutputError
from batchjobs.storage import lock
from batchjobs.storage.store import open_store


def test_a_second_runner_is_refused_and_told_who_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 0.2)
    store = open_store(str(tmp_path))
    held = lock.acquire(store)
    with pytest.raises(OutputError, match=f"in use by process {os.getpid()} on "):
        lock.acquire(store)
    held.release()
    lock.acquire(store).release()


def holder_of(output: Path) -> subprocess.Popen[str]:
    """Another process, which holds the output."""
    code = (
        f"import sys, time; from {lock.__name__} import acquire; from {open_store.__module__} import open_store\n"
        "held = acquire(open_store(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(output)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_stopped_runner_still_holds_and_a_killed_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 0.2)
    child = holder_of(tmp_path)
    child.send_signal(signal.SIGSTOP)
    with pytest.raises(OutputError, match=f"in use by process {child.pid} on "):
        lock.acquire(open_store(str(tmp_path)))
    child.kill()
    child.wait()
    lock.acquire(open_store(str(tmp_path))).release()
