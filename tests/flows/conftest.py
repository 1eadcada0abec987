"""One real Prefect server for these tests, in a home of its own: the user's is neither read nor written."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.server import Server, own_server

assert "prefect" not in sys.modules, "Prefect reads its home when it is imported, which must not happen before this"
_home = tempfile.TemporaryDirectory(prefix="prefect-home-")
os.environ["PREFECT_HOME"] = _home.name
# Prefect 3.7 looks for these two under ~/.prefect even when PREFECT_HOME is another folder.
os.environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"] = f"{_home.name}/storage"
os.environ["PREFECT_SERVER_MEMO_STORE_PATH"] = f"{_home.name}/memo_store.toml"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ.pop("PREFECT_API_URL", None)


@pytest.fixture(scope="session")
def prefect_home() -> Path:
    """What is PREFECT_HOME for everything under `tests/flows`."""
    return Path(_home.name)


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[Server]:
    """The server of these tests: one in a process, because Prefect's workers for logs and events stay with the first.

    It has all its services; Prefect's own test harness starts one without a scheduler, and without expiry of leases.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with own_server(Path(_home.name) / "server") as server, temporary_settings({PREFECT_API_URL: server.url}):
        yield server
        _send_the_rest()


def _send_the_rest() -> None:
    """Before the server is gone: what is still queued would be tried again for minutes."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for service in (APILogWorker, EventsWorker):
        service.drain_all(timeout=10)


@pytest.fixture(scope="session")
def prefect_api(prefect_server: Server) -> str:
    """Address of the API that flows in this process use."""
    return prefect_server.url


@pytest.fixture(scope="session")
def pool(prefect_server: Server) -> str:
    """The work pool that both deployments name."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="gpu", type="process"))
    return "gpu"


@pytest.fixture(scope="module")
def _operating(prefect_api: str, pool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from tests.flows.operating import operating

    with operating(prefect_api, tmp_path_factory.mktemp("operations")):
        yield


@pytest.fixture
def api(_operating: None, prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server with deployments and a worker, which the commands of a test know; the address of its API."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    return prefect_api


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
