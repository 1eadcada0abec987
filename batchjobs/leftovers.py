"""Processes that an earlier life has left behind, found by a mark in their environment, never by number or name.

A parent-death signal is not enough: it follows the thread that spawned, and vLLM's EngineCore does not inherit it.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MARK = "BATCHJOBS_OUTPUT_MARK"
ATTEMPT = "BATCHJOBS_ATTEMPT"
_PATIENCE = 10.0  # seconds for the kernel to end what was killed
# Shared memory and semaphores of vLLM's and Python's queues: their resource tracker, killed as well, cannot clean up.
_SHARED_MEMORY = re.compile(r"(/dev/shm/(?:psm_|sem\.mp-)\w+)")
_ENDED = "ZX"  # states of a process that holds nothing any more; its parent has only not asked for its exit code


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
    """End what carries the mark; returns how many processes there were. Raises TimeoutError if one does not end."""
    return _end(lambda: marked(mark, attempt))


def end_group(group: int) -> int:
    """End a process group; returns how many processes there were. Raises TimeoutError if one does not end."""
    return _end(lambda: [pid for pid in _processes() if _state_and_group(pid)[1] == group])


def _end(find: Callable[[], list[int]]) -> int:
    """Kill what is found, and remove its shared memory. Returns when the last one has ended: until then, its device may
    not be free; one that waits for a dead disk or driver never does.
    """
    deadline = time.monotonic() + _PATIENCE
    killed: set[int] = set()
    segments: set[str] = set()
    while pids := [pid for pid in killed | set(find()) if _state_and_group(pid)[0] not in _ENDED]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} were killed and do not end; they may still hold the device")
        for pid in pids:
            segments |= _segments(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(pids)
        time.sleep(0.02)
    for segment in segments:
        Path(segment).unlink(missing_ok=True)
    return len(killed)


def _state_and_group(pid: int) -> tuple[str, int]:
    with suppress(OSError):
        state, _, group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
        return state, int(group)
    return "X", -1


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def _segments(pid: int) -> set[str]:
    with suppress(OSError):
        return set(_SHARED_MEMORY.findall(Path(f"/proc/{pid}/maps").read_text()))
    return set()
