"""The deployments of `prefect.yaml`, the nightly flow, and ad-hoc submission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.responses import DeploymentResponse
from prefect.settings import PREFECT_API_URL, temporary_settings

from batchjobs.errors import Refused, SpecError
from flows.batch_inference import exit_code_of
from flows.deploy import deploy
from flows.nightly import nightly
from flows.submit import submit
from tests.conftest import MakeJob, write_spec
from tests.flows.operating import deploy as deploy_all
from tests.flows.seen import tasks_of
from tests.waiting import free_port

pytestmark = pytest.mark.prefect


@pytest.fixture(scope="module")
def deployed(prefect_api: str, pool: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which the deployments were made, with the real command."""
    folder = tmp_path_factory.mktemp("operations")
    deploy_all(prefect_api, folder)
    return folder


def deployment(name: str) -> DeploymentResponse:
    with get_client(sync_client=True) as client:
        return client.read_deployment_by_name(name)


def test_the_nightly_deployment_names_a_job_file_and_cancels_a_duplicate(deployed: Path) -> None:
    night = deployment("nightly/nightly")
    assert night.parameters == {"job_file": "jobs/nightly.yaml"}
    schedule = night.schedules[0].schedule
    assert (schedule.cron, bool(schedule.timezone)) == ("0 2 * * *", True)
    assert night.global_concurrency_limit is not None
    assert night.global_concurrency_limit.limit == 1
    assert night.concurrency_options is not None
    assert night.concurrency_options.collision_strategy == ConcurrencyLimitStrategy.CANCEL_NEW
    assert night.work_pool_name == "gpu"


def test_the_adhoc_deployment_queues_and_has_a_form(deployed: Path) -> None:
    adhoc = deployment("batch-inference/adhoc")
    assert adhoc.concurrency_options is not None
    assert adhoc.concurrency_options.collision_strategy == ConcurrencyLimitStrategy.ENQUEUE
    assert "JobSpec" in str(adhoc.parameter_openapi_schema)
    assert adhoc.schedules == []


def test_a_backfill_is_the_nightly_flow_without_a_schedule(deployed: Path) -> None:
    backfill = deployment("nightly/backfill")
    assert (backfill.schedules, backfill.parameters) == ([], {})
    assert backfill.concurrency_options is not None
    assert backfill.concurrency_options.collision_strategy == ConcurrencyLimitStrategy.ENQUEUE


def test_flows_are_imported_from_the_installed_package_in_the_folder_of_the_job_files(deployed: Path) -> None:
    for name in ("nightly/nightly", "nightly/backfill", "batch-inference/adhoc"):
        found = deployment(name)
        assert found.entrypoint is not None
        assert found.entrypoint.startswith("flows.")
        assert str(deployed) in str(found.pull_steps)


def test_the_command_makes_the_same_deployments_as_the_file(deployed: Path) -> None:
    names = ("batch-inference/adhoc", "nightly/backfill", "nightly/nightly")
    of_file = [_settings(name) for name in names]
    (deployed / "jobs").mkdir()
    (deployed / "jobs/nightly.yaml").touch()
    assert deploy(deployed, ["jobs/nightly.yaml"]) == list(names)
    assert [_settings(name) for name in names] == of_file


def test_a_new_time_reaches_a_paused_schedule_which_stays_paused(deployed: Path) -> None:
    (deployed / "late.yaml").touch()
    with get_client(sync_client=True) as client:
        night = deployment("nightly/nightly")
        client.update_deployment_schedule(night.id, night.schedules[0].id, active=False)
        deploy(deployed, ["late.yaml"], "30 4 * * *", "Asia/Tokyo")
        (after,) = deployment("nightly/nightly").schedules
        client.update_deployment_schedule(night.id, after.id, active=True)
    assert (after.schedule.cron, after.schedule.timezone, after.active) == ("30 4 * * *", "Asia/Tokyo", False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"job_files": ["none.yaml"]}, "none.yaml"), ({"timezone": "Mars"}, "Mars"), ({"cron": "at two"}, "at two")],
)
def test_a_deployment_that_cannot_be_is_refused(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=f"{message}.*[Nn]othing was deployed"):
        deploy(tmp_path, **wrong)


def _settings(name: str) -> dict[str, Any]:
    """All that is not an id or a time, or the version, which the command does not take from git."""
    told = deployment(name).model_dump(mode="json")
    limit, schedules = told["global_concurrency_limit"]["limit"], told["schedules"]
    kept = ("name", "description", "tags", "parameters", "entrypoint", "path", "pull_steps", "work_pool_name",
            "work_queue_name", "job_variables", "concurrency_options", "enforce_parameter_schema", "paused",
            "parameter_openapi_schema")  # fmt: skip
    timed = [{key: one[key] for key in ("schedule", "active", "slug", "parameters")} for one in schedules]
    return {"limit": limit, "schedules": timed, **{key: told[key] for key in kept}}


def test_submit_schedules_a_run_with_the_spec_as_it_is(deployed: Path, make_job: MakeJob) -> None:
    lake = {"path": "${LAKE}/docs", "storage_options": {"key": "${KEY}"}}
    job = make_job(input=lake, prompt={"template": "x {{ text }}"})
    submitted = submit(job, tags=["mine"])
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(submitted.id)
    assert run.state is not None
    assert run.state.is_scheduled()
    assert (run.name, "mine" in run.tags) == (submitted.name, True)
    assert submitted.url is not None
    assert str(run.id) in submitted.url
    assert type(job).model_validate(run.parameters["job"]) == job
    assert run.parameters["job"]["input"]["path"] == "${LAKE}/docs"
    assert run.parameters["job"]["prompt"]["template"] == "x {{ text }}"


def test_submit_without_a_deployment_names_the_command_that_makes_it(prefect_api: str, make_job: MakeJob) -> None:
    with pytest.raises(Refused, match="prefect deploy --all"):
        submit(make_job(), deployment="batch-inference/none")


def test_submit_without_an_api_says_what_to_set_or_start(prefect_api: str, make_job: MakeJob) -> None:
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}), pytest.raises(Refused) as caught:
        submit(make_job())
    assert "prefect server start" in str(caught.value)
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(Refused, match="PREFECT_API_URL"):
        submit(make_job())


def test_the_nightly_flow_runs_the_job_in_the_file(prefect_api: str, make_job: MakeJob, tmp_path: Path) -> None:
    file = write_spec(make_job(), tmp_path / "docs.yaml")
    state = nightly(str(file), return_state=True)
    assert exit_code_of(state) == 0
    with get_client(sync_client=True) as client:
        assert state.state_details.flow_run_id is not None
        run = client.read_flow_run(state.state_details.flow_run_id)
    assert run.name.startswith("docs-20")
    assert set(tasks_of(run)) == {"plan", "run", "summarise"}


def test_a_bad_job_file_is_refused_by_the_nightly_flow(prefect_api: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\ninputs: {}\n")
    state = nightly(str(file), return_state=True)
    assert (state.name, exit_code_of(state)) == ("Refused", 2)
    with pytest.raises(SpecError, match="inputs: unknown key"):
        state.result()
