"""The command that makes the server's automations, and what they do: each on a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import AutomationSort
from prefect.events.schemas.automations import Automation
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Pending, Running

from batchjobs.errors import Refused
from batchjobs.supervision.progress import Silent
from flows.automations import PREFIX, Wanted, remove_automations, set_automations
from flows.batch_inference import run_in_process
from flows.nightly import nightly
from tests.conftest import MakeJob, batchjobs, text_table
from tests.flows.seen import run_named
from tests.waiting import eventually, free_port

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


def test_the_command_makes_them_once_and_removes_what_is_not_asked_for(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://127.0.0.1:9/"
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    first = batchjobs("automations", "--webhook", url, "--max-resumes", "2")
    assert (first.returncode, first.stderr) == (0, "")
    names = ["no heartbeat", "resume after a crash", "tell of failures"]
    assert first.stdout.splitlines()[:3] == [f"created   {PREFIX}{name}" for name in names]
    before = ours()
    assert set(names) <= set(before)

    assert set(set_automations(Wanted(webhook=url, max_resumes=2)).values()) == {"unchanged"}
    changed = set_automations(Wanted(webhook=url, max_resumes=1))
    assert {name for name, change in changes_of(changed) if change == "changed"} == {"resume after a crash"}
    assert {name: each.id for name, each in ours().items()} == {name: each.id for name, each in before.items()}
    assert ("tell of failures", "removed") in changes_of(set_automations(Wanted()))

    removed = batchjobs("automations", "--remove")
    assert removed.stdout.splitlines() == [f"removed   {PREFIX}{name}" for name in names[:2]]
    assert ours() == {}


def changes_of(changes: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(name.removeprefix(PREFIX), change) for name, change in changes.items()}


def test_without_a_server_the_command_says_what_to_start(prefect_api: str) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/api"
    with temporary_settings({PREFECT_API_URL: nobody}), pytest.raises(Refused, match="prefect server start"):
        set_automations(Wanted())


def test_a_run_that_ends_badly_calls_the_webhook_with_what_and_why(
    make_job: MakeJob, webhook: Webhook, tmp_path: Path
) -> None:
    set_automations(Wanted(webhook=webhook.url))
    run_in_process(make_job(name="fine"), False, Silent())
    name = 'half "done"'
    job = make_job(text_table(11), name=name, engine={"echo": {"error_rows": [1, 2]}}, output={"path": f"{tmp_path}/b"})
    summary = run_in_process(job, False, Silent())
    (call,) = eventually(lambda: webhook.calls, bool)  # the other run, which ended well, did not
    assert call["text"] == f"{name}: Partial. {summary.message}"
    assert (call["event"], call["starts"]) == ("prefect.flow-run.Partial", "1")
    assert call["flow_run"] == f"prefect.flow-run.{run_named(name).id}"


def test_a_night_without_a_completed_run_calls_the_webhook(prefect_api: str, webhook: Webhook) -> None:
    with get_client(sync_client=True) as client:
        flow = client.create_flow(nightly)
        every_night = [DeploymentScheduleCreate(schedule=CronSchedule(cron="0 2 * * *"), active=False)]
        deployment = client.create_deployment(flow, "missed", schedules=every_night)
        client.create_deployment(flow, "other", schedules=every_night)
        client.create_deployment(flow, "by hand")
    made = set(set_automations(Wanted(webhook=webhook.url, missed_after=10)))
    missed = f"{PREFIX}tell of a missed night of nightly"
    assert made >= {f"{missed}/missed", f"{missed}/other"}
    assert f"{missed}/by hand" not in made
    calls = eventually(lambda: webhook.calls, lambda found: len(found) >= 2)
    assert any(call["text"].startswith("No run of nightly/missed has completed for ") for call in calls)
    with get_client(sync_client=True) as client:
        client.delete_deployment(deployment)
    assert "removed" in set_automations(Wanted(webhook=webhook.url)).values()


def test_what_the_server_did_not_hear_crash_is_resumed_by_the_command_but_not_for_ever(prefect_api: str) -> None:
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(nightly), "unheard")
        run = client.create_flow_run_from_deployment(deployment)
        for start in (1, 2):
            for state in (Pending(), Running(), Crashed()):
                client.set_flow_run_state(run.id, state)
            assert client.read_flow_run(run.id).run_count == start
            changes = set_automations(Wanted(max_resumes=1))
            assert (f"flow run {run.name}" in changes) == (start == 1)
            assert client.read_flow_run(run.id).state_name == ("AwaitingRetry" if start == 1 else "Crashed")
