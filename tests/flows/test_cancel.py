"""Ending a run: by the command, as the UI does it, without Prefect. Nothing is left, and it can go on."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Running

from batchjobs.errors import Refused
from batchjobs.leftovers import mark_of, marked
from flows.batch_inference import exit_code_of
from flows.cancel import cancel, find
from flows.submit import submit
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, read_output, text_table, write_spec
from tests.flows.operating import ended, prefect, processes_of, read_run, without_worker
from tests.waiting import eventually

pytestmark = pytest.mark.prefect


def parts(job: JobSpec) -> int:
    return len(list(Path(job.output.path).glob("part-*")))


def has_begun(job: JobSpec) -> None:
    eventually(lambda: parts(job), bool, seconds=90)


def nothing_is_left(run: UUID, job: JobSpec) -> bool:
    eventually(lambda: processes_of(run), lambda found: not found)
    return marked(mark_of(job.output.path)) == []


def summary_of(job: JobSpec) -> dict[str, object]:
    found: dict[str, object] = json.loads((Path(job.output.path) / "_batchjobs/summary.json").read_text())
    return found


def test_a_run_that_the_ui_cancels_leaves_nothing_and_a_retry_goes_on(make_job: MakeJob, api: str) -> None:
    job = make_job(text_table(120), name="from-the-ui", engine={"echo": {"tokens_per_s": 60}})
    run = submit(job).id
    has_begun(job)
    assert len(processes_of(run)) >= 2, "the flow's process and its replica"
    body = json.dumps({"state": {"type": "CANCELLING", "name": "Cancelling"}}).encode()  # what its button sends
    request = urllib.request.Request(f"{api}/flow_runs/{run}/set_state", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()
    assert ended(run).state_name == "Cancelled"
    assert nothing_is_left(run, job)
    before = summary_of(job)
    assert before["state"] == "partial"
    done = before["rows"]["ok"]  # type: ignore[index]
    assert 0 < done < 120

    prefect("flow-run", "retry", str(run), url=api)
    assert (ended(run).state_name, read_run(run).run_count) == ("Completed", 2)
    rows = summary_of(job)["rows"]
    assert isinstance(rows, dict)
    assert rows["reused"] >= done, "what was committed, and what was journaled of open shards"
    assert (rows["ok"], rows["reused"] + rows["generated"]) == (120, 120)
    assert sorted(read_output(job)["id"].to_pylist()) == sorted(f"id-{n}" for n in range(120))


def test_the_command_waits_until_nothing_is_left_and_says_how_to_go_on(
    make_job: MakeJob, tmp_path: Path, api: str
) -> None:
    job = make_job(text_table(400), name="by-command", engine={"echo": {"tokens_per_s": 40}})
    file = write_spec(job, tmp_path / "job.yaml")
    run = submit(job).id
    has_begun(job)
    told = batchjobs("cancel", file)
    assert told.returncode == 0, told.stderr
    assert read_run(run).state_name == "Cancelled"
    assert nothing_is_left(run, job)
    assert f"{parts(job)} of 100 shards are committed" in told.stdout
    assert f"To go on: prefect flow-run retry {run}" in told.stdout
    assert "is over already: " in cancel(find(str(run)))
    with pytest.raises(Refused, match="nothing was cancelled"):
        find(job.output.path)


def test_a_run_without_prefect_is_refused_a_second_time_and_ended_by_a_signal(
    make_job: MakeJob, tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(text_table(400), name="plain", engine={"echo": {"tokens_per_s": 40}})
    file = write_spec(job, tmp_path / "job.yaml")
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--no-prefect", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        has_begun(job)
        with pytest.raises(Refused, match=f"in use by process {process.pid}"):
            submit(job)
        monkeypatch.setenv("PREFECT_API_URL", prefect_api)
        told = batchjobs("cancel", job.output.path)
        assert (told.returncode, process.wait(30)) == (0, 3), told.stderr
    finally:
        process.kill()
    assert f"Process {process.pid} has stopped." in told.stdout
    assert marked(mark_of(job.output.path)) == []


def test_a_run_whose_worker_died_is_marked_once_its_output_is_seen_to_be_free(make_job: MakeJob, api: str) -> None:
    job = make_job(name="orphan")
    Path(job.output.path, "_batchjobs").mkdir(parents=True)
    Path(job.output.path, "_batchjobs/lock").touch()
    parameters = {"job": job.model_dump(mode="json", exclude_defaults=True)}
    name = without_worker("nobody")
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(name).id
        run = client.create_flow_run_from_deployment(deployment, parameters=parameters, name="orphan", state=Running())
    assert "marked as cancelled" in cancel(find("orphan"), wait_s=1)
    state = read_run(run.id).state
    assert state is not None
    assert (state.name, exit_code_of(state)) == ("Cancelled", 3)


def test_several_runs_of_one_name_are_told_apart_by_id(prefect_api: str) -> None:
    @flow(name="batch-inference")
    def some() -> None: ...

    with get_client(sync_client=True) as client:
        runs = [client.create_flow_run(some, name="same") for _ in range(2)]
        with pytest.raises(Refused, match="2 runs are called same") as caught:
            find("same")
        for run in runs:
            assert str(run.id) in str(caught.value)
            client.delete_flow_run(run.id)


def test_an_unknown_run_is_refused(prefect_api: str) -> None:
    for what in ("00000000-0000-0000-0000-000000000000", "no-such-run"):
        with pytest.raises(Refused, match="nothing was cancelled"):
            find(what)
