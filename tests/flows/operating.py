"""What an operator has set up: both deployments, made with the real command, and a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun

from tests.flows.server import worker
from tests.waiting import eventually

PREFECT_YAML = Path(__file__).parents[2] / "prefect.yaml"


def deploy(url: str, folder: Path) -> None:
    """`prefect deploy --all` in `folder`."""
    shutil.copy(PREFECT_YAML, folder)
    prefect("--no-prompt", "deploy", "--all", url=url, folder=folder)


def prefect(*arguments: str, url: str, folder: Path | None = None) -> str:
    """The real command; what it printed."""
    environment = {**os.environ, "PREFECT_API_URL": url, **({"PWD": str(folder)} if folder is not None else {})}
    return subprocess.run(
        [sys.executable, "-m", "prefect", *arguments], cwd=folder, env=environment, check=True, capture_output=True,
        text=True,
    ).stdout  # fmt: skip


@contextmanager
def operating(url: str, folder: Path) -> Iterator[None]:
    """Both deployments and a worker; it learns nothing from jobs that the user has run."""
    deploy(url, folder)
    with worker(url, folder, XDG_STATE_HOME=str(folder / "state")):
        yield


def without_worker(pool: str) -> str:
    """A second deployment of `batch-inference`, for a pool that no worker serves."""
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=pool, type="process"), overwrite=True)
        adhoc = client.read_deployment_by_name("batch-inference/adhoc")
        client.create_deployment(
            adhoc.flow_id, pool, work_pool_name=pool, entrypoint=adhoc.entrypoint,
            parameter_openapi_schema=adhoc.parameter_openapi_schema,
        )  # fmt: skip
    return f"batch-inference/{pool}"


def read_run(run: UUID | str) -> FlowRun:
    """The flow run as it is now."""
    with get_client(sync_client=True) as client:
        return client.read_flow_run(UUID(str(run)))


def ended(run: UUID | str, seconds: float = 120) -> FlowRun:
    """The flow run once it is over."""
    return eventually(lambda: read_run(run), lambda found: bool(found.state and found.state.is_final()), seconds)


def processes_of(run: UUID | str) -> list[int]:
    """Everything that runs for a flow run: its own process, the replicas, their children. They inherit its id."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and str(run).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
