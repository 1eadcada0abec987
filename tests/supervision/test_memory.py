"""How much memory a replica's processes hold."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchjobs.supervision.memory import MemoryWatch, held_on_device, resident_bytes
from tests.conftest import MakeJob, run_here, text_table


def test_resident_memory_of_several_processes_is_added_up_and_one_that_is_gone_is_left_out() -> None:
    script = "x = b'x' * 50_000_000; print(len(x), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    own, both = resident_bytes([os.getpid()]), resident_bytes([os.getpid(), child.pid])
    child.communicate(b"\n")
    assert both - own > 50_000_000
    assert resident_bytes([child.pid]) == 0


def test_the_replica_is_looked_at_while_it_runs(make_job: MakeJob) -> None:
    memory = run_here(make_job(text_table(20), engine={"echo": {"tokens_per_s": 100, "start_s": 0.5}})).memory
    assert memory.host_peak_bytes is not None
    assert memory.host_peak_bytes > 20_000_000, "Python with Arrow is larger"


def test_of_a_device_only_what_the_replica_holds_is_counted() -> None:
    said = "101, 70000\n102, 1000\n999, 5\n103, [N/A]\n\n"
    assert held_on_device(said, [101, 102, 103]) == 71_000 * 2**20
    assert held_on_device("[Not Found]\n", [101]) == 0


@pytest.mark.parametrize(("named", "mebibytes"), [(True, 1200), (False, None)], ids=["named", "hidden"])
def test_the_memory_of_a_device_is_what_nvidia_smi_says_and_not_known_where_a_container_hides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool, mebibytes: int | None
) -> None:
    """There is no GPU: a script in its place says of which process it would speak."""
    smi, own = tmp_path / "nvidia-smi", os.getpid()
    smi.write_text(f"#!/bin/sh\necho '{own if named else 1}, 1200'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    watch = MemoryWatch(lambda: [own])
    watch.start()
    deadline = time.monotonic() + 30
    while watch.peak.host_peak_bytes is None and time.monotonic() < deadline:
        time.sleep(0.05)
    watch.stop()
    watch.join()
    assert watch.peak.host_peak_bytes is not None
    assert watch.peak.device_peak_bytes == (mebibytes and mebibytes * 2**20)
