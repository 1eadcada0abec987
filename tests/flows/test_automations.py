"""The command that makes the server's automations, and what they do: each on a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import AutomationSort
from prefect.events.schemas.automations import Automation

from batchjobs.errors import Refused
from flows.automations import PREFIX, Wanted, remove_automations, set_automations
from flows.batch_inference import run_in_process
from flows.nightly import nightly
from tests.conftest import MakeJob, batchjobs
from tests.flows.waiting import eventually, free_port

pytestmark = pytest.mark.prefect


class Webhook:
    """An HTTP server that remembers what it was sent."""

    def __init__(self) -> None:
        self.calls = calls = list[dict[str, str]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/told"

    def __enter__(self) -> Webhook:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        yield server


@pytest.fixture(autouse=True)
def _none_left(prefect_api: str) -> Iterator[None]:
    yield
    remove_automations()


def ours() -> dict[str, Automation]:
    with get_client(sync_client=True) as client:
        found = client.read_automations(sort=AutomationSort.NAME_ASC)
    return {automation.name.removeprefix(PREFIX): automation for automation in found if PREFIX in automation.name}


def test_the_command_creates_changes_and_removes_and_never_duplicates(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    arguments = ["automations", "--webhook", "http://127.0.0.1:9/"]
    first = batchjobs(*arguments)
    assert (first.returncode, first.stderr) == (0, "")
    assert [line.split()[0] for line in first.stdout.splitlines()] == ["created"] * 3
    before = ours()
    assert set(before) == {"no heartbeat", "resume after a crash", "tell of failures"}

    assert {line.split()[0] for line in batchjobs(*arguments).stdout.splitlines()} == {"unchanged"}
    changed = batchjobs(*arguments, "--max-resumes", "1")
    assert "changed   batchjobs: resume after a crash\n" in changed.stdout
    assert {name: each.id for name, each in ours().items()} == {name: each.id for name, each in before.items()}

    without = batchjobs("automations")
    assert "removed   batchjobs: tell of failures\n" in without.stdout
    assert "no --webhook" in without.stderr
    assert batchjobs("automations", "--remove").stdout.count("removed") == 2
    assert ours() == {}


def test_without_a_server_the_command_says_what_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    refused = batchjobs("automations")
    assert (refused.returncode, "prefect server start" in refused.stderr) == (2, True)
