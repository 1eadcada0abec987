"""One runner per output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchjobs import lock
from batchjobs.errors import OutputError
from batchjobs.store import open_store


def test_a_second_runner_is_refused_and_told_who_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 0.2)
    store = open_store(str(tmp_path))
    held = lock.acquire(store)
    with pytest.raises(OutputError, match=f"in use by process {os.getpid()} on "):
        lock.acquire(store)
    held.release()
    lock.acquire(store).release()


def test_the_lock_of_a_killed_runner_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time; from batchjobs.lock import acquire; from batchjobs.store import open_store\n"
        "held = acquire(open_store(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    child.kill()
    child.wait()
    lock.acquire(open_store(str(tmp_path))).release()
