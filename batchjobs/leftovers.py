"""Processes that an earlier life has left behind, found by a mark in their environment, never by number or name.

A parent-death signal is not enough: it follows the thread that spawned, and vLLM's EngineCore does not inherit it.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "BATCHJOBS_OUTPUT_MARK"
ATTEMPT = "BATCHJOBS_ATTEMPT"
DEVICES = "BATCHJOBS_DEVICE_LOCKS"  # of the devices that a life may use, joined by commas
_PATIENCE = 10.0  # seconds for the kernel to end what was killed
_TRACKER_S = 1.0  # for a resource tracker to end by itself
# Shared memory and semaphores of vLLM's and Python's queues, whose tracker may be dead.
_SHARED_MEMORY = re.compile(r"(/dev/shm/(?:psm_|sem\.mp-)\w+)")
_ENDED = "ZX"  # states of a thread that runs no more; its parent has only not asked for its exit code


class _Stat(NamedTuple):
    state: str  # of the first thread
    group: int
    threads: int


def mark_of(url: str) -> str:
    """The mark of all processes that work for one output."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]


def marked(mark: str, attempt: int | None = None) -> list[int]:
    """Processes that carry the mark, without this one; with `attempt`, those of one life only."""
    wanted = {f"{MARK}={mark}"} | ({f"{ATTEMPT}={attempt}"} if attempt is not None else set())
    return [pid for pid, variables in _environments() if wanted <= variables]


def remove_marked(mark: str) -> int:
    """End what carries the mark; returns how many processes there were. Raises TimeoutError if one does not end."""
    return _end(lambda: marked(mark))


def remove_users(lock: str) -> int:
    """End what was given the device with this lock; as `remove_marked`. For whoever has the lock: its user is gone."""

    def find() -> list[int]:
        given = f"{DEVICES}="
        return [
            pid
            for pid, variables in _environments()
            if any(lock in each.removeprefix(given).split(",") for each in variables if each.startswith(given))
        ]

    return _end(find)


def of_life(group: int, mark: str, attempt: int) -> list[int]:
    """Processes of one life: its process group, and what of it has left the group, as vLLM's workers do."""
    in_group = {pid for pid in _processes() if _stat(pid).group == group}
    return sorted(in_group.union(marked(mark, attempt)))


def end_life(group: int, mark: str, attempt: int) -> int:
    """End one life. As `remove_marked`."""
    return _end(lambda: of_life(group, mark, attempt))


def _end(find: Callable[[], list[int]]) -> int:
    """Kill what is found, and remove its shared memory. Returns when the last one has ended: until then, its device may
    not be free; one that waits for a dead disk or driver never does.
    """
    began = time.monotonic()
    killed: set[int] = set()
    segments: set[str] = set()
    while pids := [pid for pid in killed | set(find()) if not has_ended(pid)]:
        if time.monotonic() > began + _PATIENCE:
            raise TimeoutError(f"processes {sorted(pids)} were killed and do not end; they may still hold the device")
        segments |= set[str]().union(*map(_segments, pids))
        over = time.monotonic() > began + _TRACKER_S
        for pid in pids if over else [pid for pid in pids if not _is_tracker(pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(pids)
        time.sleep(0.02)
    for segment in segments:
        Path(segment).unlink(missing_ok=True)
    return len(killed)


def has_ended(pid: int) -> bool:
    """Whether it holds nothing any more. The first thread of a killed process is a zombie at once, while others may
    still be on their way out, with the memory, files and locks that all of them share."""
    stat = _stat(pid)
    return stat.state in _ENDED and stat.threads <= 1


def _stat(pid: int) -> _Stat:
    """See proc_pid_stat(5)."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _Stat(fields[0], int(fields[2]), int(fields[17]))
    return _Stat("X", -1, 0)


def _is_tracker(pid: int) -> bool:
    """Whether it is Python's resource tracker, which outlives its clients by moments to remove what they left."""
    with suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _environments() -> Iterator[tuple[int, set[str]]]:
    """The environments that this user may see, without this process's own."""
    for pid in _processes():
        if pid != os.getpid():
            with suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
                yield pid, set(variables.split("\0"))


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def _segments(pid: int) -> set[str]:
    with suppress(OSError):
        return set(_SHARED_MEMORY.findall(Path(f"/proc/{pid}/maps").read_text()))
    return set()
