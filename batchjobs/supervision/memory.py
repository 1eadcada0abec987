"""The most memory that the processes of one replica held, looked at while they live."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from schemas.summary import Memory

_LOOK_S = 0.5  # between looks at resident memory
_SEARCH_S = 5.0  # between searches for processes, and between questions to nvidia-smi
_SMI = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]


class MemoryWatch(threading.Thread):
    """A thread of its own, because nvidia-smi may take seconds and the dispatcher has to listen."""

    def __init__(self, find: Callable[[], list[int]]) -> None:
        """`find` looks for the processes."""
        super().__init__(name="memory", daemon=True)
        self.peak = Memory()
        self._find = find
        self._over = threading.Event()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def run(self) -> None:
        """Look until `stop`."""
        pids: list[int] = []
        has_gpu, next_search = shutil.which(_SMI[0]) is not None, 0.0
        while not self._over.wait(_LOOK_S):
            if time.monotonic() >= next_search:
                next_search = time.monotonic() + _SEARCH_S
                pids = self._find()
                on_device = device_bytes(pids) if has_gpu else None
                has_gpu = on_device is not None
                self.peak.device_peak_bytes = _larger(self.peak.device_peak_bytes, on_device or None)
            self.peak.host_peak_bytes = _larger(self.peak.host_peak_bytes, resident_bytes(pids) or None)


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def resident_bytes(pids: Collection[int]) -> int:
    """Resident memory of the processes together; what they share is counted in each."""
    pages = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def device_bytes(pids: Collection[int]) -> int | None:
    """What nvidia-smi says that the processes hold on all GPUs together; None if it does not say."""
    try:
        said = subprocess.run(_SMI, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return held_on_device(said, pids)


def held_on_device(said: str, pids: Collection[int]) -> int:
    """Bytes over lines `pid, MiB` of these processes; 0 if none is named, as in a container that hides them."""
    lines = [line.split(",") for line in said.splitlines() if line.count(",") == 1]
    wanted = {str(pid) for pid in pids}
    held = [mebibytes.strip() for pid, mebibytes in lines if pid.strip() in wanted]
    return sum(int(mebibytes) for mebibytes in held if mebibytes.isdigit()) * 2**20
