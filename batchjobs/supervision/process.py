"""A replica's operating-system process: its pipes, its log, its group."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from batchjobs.leftovers import ATTEMPT, MARK, end_life, of_life
from batchjobs.replica.assignment import Assignment
from batchjobs.replica.channel import Sender, receive
from batchjobs.supervision.memory import MemoryWatch
from schemas.summary import Memory

_LEAVE_S = 60.0  # seconds that a replica may take to free its engine after its last message
# What people want to see of an engine's log: trouble, and what the engine says of its capacity.
_IMPORTANT = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|KV cache size|Maximum concurrency|[Oo]ut of memory")


class ReplicaProcess:
    """Started in a session of its own, so that Ctrl-C reaches only us, and its whole group can be killed."""

    def __init__(
        self, python: str, environment: Mapping[str, str], log: Path, locks: Sequence[int], assignment: Assignment
    ) -> None:
        reading, writing = os.pipe()
        self._log, self._log_read = log, 0
        self.started = time.monotonic()
        self._ended: float | None = None
        self._mark = environment[MARK], int(environment[ATTEMPT])
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [python, "-m", "batchjobs.replica", str(writing)],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=[writing, *locks],
                start_new_session=True,
            )
        os.close(writing)
        assert self._process.stdin is not None
        self._commands = Sender(self._process.stdin.fileno())
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(reading,), name="events", daemon=True).start()
        self._memory = MemoryWatch(lambda: of_life(self.pid, *self._mark))
        self._memory.start()
        self.send("assignment", assignment=assignment.model_dump(mode="json"))

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    def _listen(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as stream:
            for message in receive(stream):
                self.events.put({**message, "at": time.monotonic()})
        self.events.put({"kind": "end"})

    def send(self, kind: str, **fields: Any) -> None:
        """Send a command; a replica that is gone reads none, and its end is noticed elsewhere."""
        with suppress(BrokenPipeError):
            self._commands.send(kind, **fields)

    def wait(self) -> int:
        """Exit code, once the replica has closed its events; one that does not leave in time is killed."""
        try:
            return self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def kill(self) -> None:
        """Nothing of the replica's group is left afterwards."""
        end_life(self.pid, *self._mark)
        self._process.wait()
        if self._ended is None:
            self._ended = time.monotonic()
            self._memory.stop()
            with suppress(OSError):
                assert self._process.stdin is not None
                self._process.stdin.close()

    def held_s(self) -> float:
        """Seconds from start to now, or to the end."""
        return (self._ended or time.monotonic()) - self.started

    def peak_memory(self) -> Memory:
        """The most that it held so far."""
        return self._memory.peak

    def important_lines(self) -> list[str]:
        """Lines of the log since the last call that a person should see."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(self._log_read)
                data = stream.read()
        except FileNotFoundError:
            return []  # the output folder was moved away; the replica will say so
        whole = data[: data.rfind(b"\n") + 1]
        self._log_read += len(whole)
        return [line for line in whole.decode("utf-8", "replace").splitlines() if _IMPORTANT.search(line)]


def last_lines(log: Path, count: int = 20) -> list[str]:
    """The end of a log: the evidence of how a replica ended."""
    try:
        return log.read_text("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []
