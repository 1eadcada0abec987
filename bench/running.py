"""Run a command and measure it as a whole: wall clock and the peak memory of its largest process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_S = 0.1


@dataclass(frozen=True)
class Measured:
    """What a command took."""

    stdout: str
    wall_s: float
    peak_bytes: int  # resident set of the largest process of its tree, sampled ten times a second


def measured(*command: str, **environment: str) -> Measured:
    """Run a command to its end; raises CalledProcessError, with its output shown, if it fails."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    peak = _Peak(process.pid)
    out, err = process.communicate()
    peak.stop()
    if process.returncode != 0:
        print(out, err, sep="\n", file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(out, time.monotonic() - began, peak.bytes)


class _Peak(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._root, self._over = psutil.Process(pid), threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            try:
                for process in [self._root, *self._root.children(recursive=True)]:
                    self.bytes = max(self.bytes, process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue

    def stop(self) -> None:
        self._over.set()
        self.join()


def batchjobs(*arguments: str | Path) -> Measured:
    """The command of this checkout."""
    return measured(sys.executable, "-m", "batchjobs.cli", *map(str, arguments))
