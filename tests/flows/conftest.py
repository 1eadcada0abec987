"""One real Prefect server for these tests, in a home of its own: the user's is neither read nor written."""

from __future__ import annotations

import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

assert "prefect" not in sys.modules, "Prefect reads its home when it is imported, which must not happen before this"
_home = tempfile.TemporaryDirectory(prefix="prefect-home-")
os.environ["PREFECT_HOME"] = _home.name
# Prefect 3.7 looks for these two under ~/.prefect even when PREFECT_HOME is another folder.
os.environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"] = f"{_home.name}/storage"
os.environ["PREFECT_SERVER_MEMO_STORE_PATH"] = f"{_home.name}/memo_store.toml"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ.pop("PREFECT_API_URL", None)

Value = TypeVar("Value")


@pytest.fixture(scope="session")
def prefect_home() -> Path:
    """What is PREFECT_HOME for everything under `tests/flows`."""
    return Path(_home.name)


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    """Address of the API of the server that flows in this process use."""
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield str(PREFECT_API_URL.value())


@pytest.fixture(autouse=True)
def _prefect_of_these_tests(
    _nothing_of_the_user: None, monkeypatch: pytest.MonkeyPatch, prefect_home: Path
) -> Iterator[None]:
    """Child processes share the home; what flows change of logging does not outlast a test."""
    monkeypatch.setenv("PREFECT_HOME", str(prefect_home))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    handlers = logging.getLogger().handlers[:]
    filters = [handler.filters[:] for handler in handlers]
    yield
    for handler, before in zip(handlers, filters, strict=True):
        handler.filters = before


def eventually(look: Callable[[], Value], enough: Callable[[Value], bool], seconds: float = 30) -> Value:
    """What `look` returns once it is `enough`: Prefect's events and log lines arrive later than states."""
    deadline = time.monotonic() + seconds
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"not in {seconds} s: {found}"
        time.sleep(0.2)
    return found


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
