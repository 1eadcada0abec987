"""Workloads on one engine: starts `bench.one_engine` for each, and keeps what it tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from bench.results import Section
from bench.running import TIMEOUT_S
from bench.workloads import WORKLOADS

CONTENDERS = {
    "uniform": ["once", "ours"],
    "docstrings": ["once", "ours", "per_shard"],
    "prefixes": ["once", "ours"],
    "duplicates": ["once", "ours"],
    "tail": ["once", "ours"],
    "bad_rows": ["once", "ours", "unfiltered"],
    "float32": ["once", "ours", "per_shard"],
    "feed": ["per_shard", "ours"],
    "slots": ["64_at_a_time", "32_at_a_time", "16_at_a_time", "8_at_a_time"],
}
ROUNDS = 5
_LOG_LINES = 20


def measure(workload: str, section: Section, rows: int | None, rounds: int | None) -> None:
    """Run the contest of one workload."""
    with tempfile.TemporaryDirectory() as folder:
        job = WORKLOADS[workload].write(Path(folder), rows)
        _contest(section, job, rounds or ROUNDS, CONTENDERS[workload])


def _contest(section: Section, job: Path, rounds: int, contenders: list[str]) -> None:
    reading, writing = os.pipe()
    log = job.parent / "log"
    command = [sys.executable, "-m", "bench.one_engine", str(job), str(writing), str(rounds), *contenders]
    with log.open("w") as file, os.fdopen(reading) as told:
        process = subprocess.Popen(command, pass_fds=[writing], stdout=file, stderr=file)
        os.close(writing)
        watchdog = threading.Timer(TIMEOUT_S, process.terminate)
        watchdog.start()
        try:
            for line in told:
                _keep(section, json.loads(line))
        except BaseException:
            process.terminate()
            raise
        finally:
            watchdog.cancel()
        code = process.wait()
    if code:
        end = "\n".join(log.read_text().splitlines()[-_LOG_LINES:])
        section.fail(f"the engine's process ended with {code}:\n{end}")


def _keep(section: Section, told: dict[str, Any]) -> None:
    if "facts" in told:
        section.fact(**told["facts"])
        return
    section.add(told)
    if "error" in told and told["contender"] != "unfiltered":  # which is there to show that it raises
        section.fail(f"{told['contender']} in round {told['round']}: {told['error']}")
