"""Messages between dispatcher and replica: one JSON object per line, row numbers and figures only, never rows."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO


class Sender:
    """Writes messages to a pipe, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message. Raises BrokenPipeError when nobody reads any more."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """The other side sees end of file."""
        os.close(self._descriptor)


def receive(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Messages until end of file. A torn last line, from a killed sender, is no message."""
    for line in stream:
        if line.endswith(b"\n"):
            yield json.loads(line)
