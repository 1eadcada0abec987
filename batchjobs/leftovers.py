"""Processes that an earlier life has left behind, found by a mark in their environment, never by number or name.

A parent-death signal is not enough: it follows the thread that spawned, and vLLM's EngineCore does not inherit it.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

MARK = "BATCHJOBS_OUTPUT_MARK"
ATTEMPT = "BATCHJOBS_ATTEMPT"
_PATIENCE = 10.0  # seconds for the kernel to end what was killed
# Shared memory of vLLM's and Python's queues: their resource tracker cannot clean up when it is killed as well.
_SHARED_MEMORY = re.compile(r"(/dev/shm/psm_\w+)")


def mark_of(url: str) -> str:
    """The mark of all processes that work for one output."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]


def marked(mark: str, attempt: int | None = None) -> list[int]:
    """Processes that carry the mark, without this one; with `attempt`, those of one life only."""
    wanted = {f"{MARK}={mark}".encode()} | ({f"{ATTEMPT}={attempt}".encode()} if attempt is not None else set())
    found = []
    for pid in _processes():
        if pid != os.getpid():
            with suppress(OSError):
                if wanted <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                    found.append(pid)
    return found


def remove_marked(mark: str, attempt: int | None = None) -> int:
    """Kill what carries the mark and remove its shared memory; returns how many processes there were.

    Raises TimeoutError if one does not end, such as a process that waits for a dead disk or driver.
    """
    deadline = time.monotonic() + _PATIENCE
    killed: set[int] = set()
    segments: set[str] = set()
    while pids := marked(mark, attempt):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} of an earlier attempt do not end; they may still hold the device")
        for pid in pids:
            segments |= _segments(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(pids)
        time.sleep(0.05)
    for segment in segments:
        Path(segment).unlink(missing_ok=True)
    return len(killed)


def wait_for_group(group: int) -> None:
    """Until every process of a killed group has ended: until then the device may not be free.

    Raises TimeoutError if one does not end.
    """
    deadline = time.monotonic() + _PATIENCE
    while pids := [pid for pid in _processes() if _is_of(group, pid)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"killed processes {pids} do not end; they may still hold the device")
        time.sleep(0.02)


def _is_of(group: int, pid: int) -> bool:
    """Whether the process is of this group and has not ended. One that has, and waits for its parent, holds nothing."""
    with suppress(OSError):
        state, _, its_group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
        return int(its_group) == group and state not in "ZX"
    return False


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def _segments(pid: int) -> set[str]:
    with suppress(OSError):
        return set(_SHARED_MEMORY.findall(Path(f"/proc/{pid}/maps").read_text()))
    return set()
