"""Waiting for what arrives late, and a port to wait on."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def eventually(look: Callable[[], Value], enough: Callable[[Value], bool], seconds: float = 30) -> Value:
    """What `look` returns once it is `enough`: Prefect's events and log lines arrive later than states."""
    deadline = time.monotonic() + seconds
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"not in {seconds} s: {found}"
        time.sleep(0.1)
    return found


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
