"""`batchjobs submit`: planned here, run by a worker, watched to the end; never twice."""

from __future__ import annotations

import contextvars
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed

from batchjobs.errors import BatchjobsError, Refused
from batchjobs.terminal import Lines
from flows.cancel import cancel, find
from flows.submit import submit
from flows.watch import End, watch
from tests.conftest import MakeJob, batchjobs, text_table, write_spec
from tests.flows.operating import read_run, without_worker
from tests.flows.server import own_server
from tests.waiting import eventually, free_port

pytestmark = pytest.mark.prefect


class Told(Lines):
    """Lines that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def _write(self, text: str) -> None:
        self.text += text


def test_a_watched_job_ends_with_its_exit_code_and_its_figures(make_job: MakeJob, tmp_path: Path, api: str) -> None:
    job = make_job(text_table(20), name="watched", cost={"usd_per_hour": 2.5})
    result = batchjobs("submit", write_spec(job, tmp_path / "job.yaml"), "--watch", "--tag", "mine")
    assert result.returncode == 0, result.stderr
    assert f"watched: 20 rows in 1 file, 5 shards, to {job.output.path}" in result.stderr
    assert "Running" in result.stderr
    assert "completed · 20 of 20 rows ok · 0 errors" in result.stderr
    assert "watched: Completed (exit code 0). All 20 rows are accounted for." in result.stdout
    run = read_run(str(re.search(r"Submitted watched \((.+)\)", result.stdout)[1]))  # type: ignore[index]
    assert "mine" in run.tags
    assert f"{api.removesuffix('/api')}/runs/flow-run/{run.id}" in result.stdout


def test_a_partial_job_exits_3_and_says_why(make_job: MakeJob, tmp_path: Path, api: str) -> None:
    job = make_job(
        text_table(20), name="half", engine={"echo": {"error_rows": [1, 2, 3]}}, run={"max_error_rate": 0.01}
    )
    result = batchjobs("submit", write_spec(job, tmp_path / "job.yaml"), "--watch", "--json")
    assert result.returncode == 3, result.stderr
    told = json.loads(result.stdout)
    assert (told["state"], told["exit_code"]) == ("Partial", 3)
    assert "3 of 20 rows failed" in told["message"]


def test_a_run_that_no_worker_takes_is_refused_twice_cancelled_and_taken_again(
    make_job: MakeJob, tmp_path: Path, api: str
) -> None:
    job, deployment = make_job(name="waits"), without_worker("nobody")
    file = write_spec(job, tmp_path / "job.yaml")
    first = batchjobs("submit", "--json", "--deployment", deployment, file)
    assert first.returncode == 0, first.stderr
    assert "No worker is online in the pool nobody" in first.stderr
    assert "prefect worker start --pool nobody" in first.stderr
    run = json.loads(first.stdout)["id"]

    with pytest.raises(Refused, match=f"waits \\({run}, .*\n.* batchjobs cancel {run}"):
        submit(job, deployment)
    cancel(find(run))
    assert read_run(run).state_name == "Cancelled"
    again = submit(job, deployment)
    assert str(again.id) != run
    cancel(find(str(file)))
    assert read_run(again.id).state_name == "Cancelled"


def test_what_cannot_be_planned_here_is_refused_unless_the_worker_knows_more(
    make_job: MakeJob, tmp_path: Path, api: str
) -> None:
    deployment = without_worker("nobody")
    missing = write_spec(make_job(input={"path": str(tmp_path / "none")}), tmp_path / "missing.yaml")
    refused = batchjobs("submit", "--deployment", deployment, missing)
    assert refused.returncode == 2
    assert "If only the worker can read the input: --no-plan." in refused.stderr
    late = {"path": str(tmp_path / "none"), "ready": {"wait": "2h"}}
    waiting = write_spec(make_job(input=late), tmp_path / "late.yaml")
    taken = batchjobs("submit", "--deployment", deployment, waiting)
    assert taken.returncode == 0
    assert "The run waits for it (input.ready.wait is 2h)." in taken.stderr
    cancel(find(str(waiting)))
    elsewhere = write_spec(make_job(input={"path": "${NOT_HERE}/docs"}), tmp_path / "elsewhere.yaml")
    sent = batchjobs("submit", "--deployment", deployment, "--json", elsewhere)
    assert sent.returncode == 0, sent.stderr
    assert "Not planned here, and sent as it is: input.path: found ${NOT_HERE}" in sent.stderr
    assert read_run(json.loads(sent.stdout)["id"]).parameters["job"]["input"]["path"] == "${NOT_HERE}/docs"
    cancel(find(str(elsewhere)))


def test_ctrl_c_ends_the_watching_and_not_the_run(make_job: MakeJob, tmp_path: Path, api: str) -> None:
    file, log = write_spec(make_job(name="left"), tmp_path / "job.yaml"), tmp_path / "stderr"
    arguments = ["submit", "--watch", "--json", "--deployment", without_worker("nobody"), str(file)]
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-m", "batchjobs.cli", *arguments], stderr=stream)
    eventually(lambda: log.read_text(), lambda text: "Scheduled" in text or "Late" in text)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    told = log.read_text()
    assert "Traceback" not in told
    run = str(re.search(r"the job goes on. To end it: batchjobs cancel (\S+)", told)[1])  # type: ignore[index]
    state = read_run(run).state
    assert state is not None
    assert state.is_scheduled()
    cancel(find(run))


def test_an_api_that_goes_away_is_asked_until_it_is_back(tmp_path: Path, prefect_home: Path) -> None:
    @flow
    def some() -> None: ...

    told, ends = Told(), list[End]()
    with own_server(tmp_path / "server") as server, temporary_settings({PREFECT_API_URL: server.url}):
        with get_client(sync_client=True) as client:
            run = client.create_flow_run(some).id
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: ends.append(watch(run, told)),))
        thread.start()
        eventually(lambda: told.text, lambda text: "Pending" in text)
        server.stop(signal.SIGKILL)
        eventually(lambda: told.text, lambda text: "does not answer; the job goes on" in text)
        server.start()
        eventually(lambda: told.text, lambda text: "answers again" in text)
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run, Completed(message="All done."), force=True)
        thread.join(30)
    assert ends == [End("Completed", "All done.", 0)]


def test_an_api_that_stays_away_ends_the_watching_with_advice() -> None:
    nowhere = {PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}
    with temporary_settings(nowhere), pytest.raises(BatchjobsError, match="batchjobs status OUT"):
        watch(uuid4(), Told(), patience_s=0)
