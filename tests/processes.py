"""Jobs in processes of their own, to be watched, stopped and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from tests.waiting import eventually


def start(file: Path) -> subprocess.Popen[str]:
    """`batchjobs run` of this job file."""
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--no-prefect", "--json", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_parts(job: JobSpec, count: int) -> None:
    """Until so many shards are committed."""
    eventually(lambda: len(committed_shards(open_store(job.output.path))), lambda parts: parts >= count, 60)


def replicas_of(job: JobSpec) -> list[int]:
    """Processes of ours that hold this output's second lock, the dispatcher among them."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
            except OSError:
                continue
            if f"{job.output.path}/_batchjobs/writers.lock" in links:
                found.append(int(process.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether it may still hold something: its first thread may be a zombie while others still hold what all share."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] not in "ZX" or int(fields[17]) > 1


def kill_all_of(job: JobSpec, running: subprocess.Popen[str]) -> None:
    """SIGKILL to the dispatcher and its replicas; returns when nothing of them holds a lock."""
    replicas = set(replicas_of(job)) - {running.pid}
    running.kill()  # first: it would start others in their place
    for pid in replicas:
        with suppress(ProcessLookupError):  # it may just have noticed
            os.kill(pid, signal.SIGKILL)
    running.wait()
    eventually(lambda: [pid for pid in replicas if is_alive(pid)], lambda left: not left)
