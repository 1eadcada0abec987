"""Run a command and measure it as a whole: wall clock, and the peak memory of its processes."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TIMEOUT_S = 1800.0  # nothing here takes half an hour, unless it hangs
_SAMPLE_S = 0.2
_LOG_CHARS = 3000


class CommandFailed(Exception):
    """A command ended with another code than 0; the message has the end of what it printed."""


@dataclass(frozen=True)
class Measured:
    """What a command took. Memory is resident and sampled; pages that processes share count in each."""

    stdout: str
    wall_s: float
    tree_bytes: int  # peak of the sum over the process tree
    peaks: dict[str, int]  # peak of the largest process of each name

    @property
    def largest_bytes(self) -> int:
        """Peak of the largest process."""
        return max(self.peaks.values(), default=0)


class Running:
    """A command that runs. It is in a process group of its own: Ctrl-C reaches it only through `finish`."""

    def __init__(self, *command: str | Path, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._out, self._err = Path(self._folder.name, "out"), Path(self._folder.name, "err")
        self._command, self._began = " ".join(map(str, command)), time.monotonic()
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._memory = _Memory(self._process.pid)

    def printed(self) -> str:
        """Everything that it has printed so far."""
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in (self._out, self._err))

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to it and all its descendants; returns when the command itself is gone."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.kill()
        self._process.wait()
        self._memory.stop()
        self._folder.cleanup()

    def finish(self, timeout: float = TIMEOUT_S) -> Measured:
        """Wait for its end, at the most `timeout` seconds; raises CommandFailed."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise CommandFailed(f"it did not end within {timeout} seconds: {self._command[:300]}") from None
        except BaseException:
            self.kill()
            raise
        wall = time.monotonic() - self._began
        self._memory.stop()
        out, printed = self._out.read_text(), self.printed()
        self._folder.cleanup()
        if code:
            last = (printed.strip().splitlines() or ["it printed nothing"])[-1]
            raise CommandFailed(f"ended with {code}: {last}\n{self._command[:300]}\n{printed[-_LOG_CHARS:]}")
        return Measured(out, wall, self._memory.tree, self._memory.peaks)


class _Memory(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.tree, self.peaks = 0, dict[str, int]()
        self._root, self._over = psutil.Process(pid), threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            try:
                self._sample([self._root, *self._root.children(recursive=True)])
            except psutil.NoSuchProcess:
                continue

    def _sample(self, processes: list[psutil.Process]) -> None:
        total = 0
        for process in processes:
            try:
                used, name = process.memory_info().rss, _name(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            total += used
            self.peaks[name] = max(self.peaks.get(name, 0), used)
        self.tree = max(self.tree, total)

    def stop(self) -> None:
        self._over.set()
        self.join()


def _name(command: list[str]) -> str:
    """`batchjobs.replica` of `python -m batchjobs.replica 7`; a title that the process gave itself as it is."""
    if "-m" in command:
        return command[command.index("-m") + 1]
    program, script = [*command, "", ""][:2]
    return f"{Path(program).name} {Path(script).name}".strip()
