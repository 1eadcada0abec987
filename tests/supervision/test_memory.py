"""How much memory a replica's processes hold."""

from __future__ import annotations

import os
import subprocess
import sys

from batchjobs.supervision.memory import held_on_device, resident_bytes
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
