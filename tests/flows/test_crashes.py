"""What dies in the night: flow processes, workers, the server. Real ones, side by side, on a server of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

from batchjobs.spec import parse_job
from flows.automations import Wanted, set_automations
from flows.submit import submit
from schemas.job import JobSpec
from tests.conftest import text_table
from tests.flows.server import Server, end, own_server, worker
from tests.waiting import eventually

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]

POOLS = ("killed", "dead", "restarted", "alive")
WITHIN = 90.0  # Prefect takes no shorter heartbeat than 30 s
MOST_RESUMES = 1
ROWS = 120
PATIENCE = 240.0  # on a machine that does other things too


@dataclass
class Box:
    """A server with pools, each with the deployment `batch-inference/POOL`, which has a limit of 1.

    A worker begins with its job: when four of them poll at once, SQLite refuses many writes ("database is locked"). The
    server repeats what failed, and with it an automation's action.
    """

    server: Server
    folder: Path
    stack: ExitStack
    workers: dict[str, subprocess.Popen[bytes]]
    runs: dict[str, UUID]

    def output(self, pool: str) -> Path:
        return self.folder / pool / "out"

    def begin(self, pool: str, seconds: float) -> None:
        """Start the pool's worker, and submit a job that takes so long."""
        self.workers[pool] = self.stack.enter_context(worker(self.server.url, self.folder, pool, pool))
        job = slow_job(self.folder / pool, pool, seconds)
        self.runs[pool] = submit(job, f"batch-inference/{pool}").id

    def run(self, pool: str) -> FlowRun:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(self.runs[pool])

    def state(self, pool: str) -> tuple[str, int]:
        """Name of the state, and how often it was started."""
        run = self.run(pool)
        return str(run.state_name), run.run_count

    def until(self, pool: str, name: str, starts: int) -> None:
        """Wait for a state, and for how often the run was started by then."""
        eventually(lambda: self.state(pool), lambda found: found == (name, starts), seconds=PATIENCE)

    def process(self, pool: str) -> psutil.Process | None:
        """The process of its flow run; its replicas are below it."""
        found = {each.pid: each for each in psutil.process_iter() if _runs(each, self.runs[pool])}
        return next((each for each in found.values() if each.ppid() not in found), None)

    def parts(self, pool: str) -> int:
        return len(list(self.output(pool).glob("part-*")))

    def generating(self, pool: str, more_than: int = 0) -> psutil.Process:
        """Its process, once more than so many shards are committed."""
        eventually(lambda: self.parts(pool), lambda count: count > more_than, seconds=PATIENCE)
        process = self.process(pool)
        assert process is not None
        return process


def _runs(process: psutil.Process, run: UUID) -> bool:
    with suppress(psutil.Error):
        return process.environ().get("PREFECT__FLOW_RUN_ID") == str(run)
    return False


def slow_job(folder: Path, name: str, seconds: float) -> JobSpec:
    """Of 120 rows in 30 shards, two rows at a time; a row is two tokens."""
    (folder / "data").mkdir(parents=True)
    pq.write_table(text_table(ROWS), folder / "data" / "00.parquet")
    return parse_job(
        {
            "name": name,
            "input": {"path": str(folder / "data")},
            "prompt": {"column": "text"},
            "sampling": {"max_tokens": 100},
            "engine": {"kind": "echo", "max_num_seqs": 2, "echo": {"answer": "ok", "tokens_per_s": 2 * ROWS / seconds}},
            "output": {"path": str(folder / "out")},
            "run": {"shard_rows": 4},
        }
    )


def deploy(folder: Path, url: str) -> None:
    """One deployment for each pool, with the real command; as the nightly one, it cancels what finds its slot taken."""
    deployments = [
        {
            "name": pool,
            "entrypoint": "flows.batch_inference.batch_inference",
            "work_pool": {"name": pool},
            "concurrency_limit": {"limit": 1, "collision_strategy": "CANCEL_NEW"},
        }
        for pool in POOLS
    ]
    pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}]
    (folder / "prefect.yaml").write_text(yaml.safe_dump({"pull": pull, "deployments": deployments}))
    subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=folder, env={**os.environ, "PREFECT_API_URL": url, "PWD": str(folder)}, check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Two jobs under way, one of them dead with its worker already: what takes long is waited for side by side."""
    folder = tmp_path_factory.mktemp("box")
    with (
        own_server(folder / "server") as server,
        temporary_settings({PREFECT_API_URL: server.url}),
        ExitStack() as stack,
    ):
        with get_client(sync_client=True) as client:
            for pool in POOLS:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        deploy(folder, server.url)
        set_automations(Wanted(heartbeat_within=WITHIN, max_resumes=MOST_RESUMES))
        box = Box(server, folder, stack, {}, {})
        for pool, seconds in (("dead", 40.0), ("killed", 150.0)):
            box.begin(pool, seconds)
        flow = box.generating("dead")
        end(box.workers["dead"], signal.SIGKILL)  # first the worker, which would tell of the other's death
        flow.kill()
        yield box


def assert_complete(box: Box, pool: str) -> None:
    """Every row is there once."""
    rows = pq.read_table(box.output(pool), columns=["row", "status"]).to_pydict()
    assert sorted(rows["row"]) == list(range(ROWS))
    assert set(rows["status"]) == {"ok"}
    assert (box.output(pool) / "_SUCCESS").exists()


def test_a_killed_flow_process_is_resumed_but_not_for_ever(box: Box) -> None:
    for start in range(1, MOST_RESUMES + 2):
        box.until("killed", "Running", start)
        box.generating("killed", more_than=box.parts("killed")).kill()
    box.until("killed", "Crashed", MOST_RESUMES + 1)
    assert box.parts("killed") >= MOST_RESUMES + 1, "each start must have gone on"
    assert not (box.output("killed") / "_SUCCESS").exists()


def test_a_living_process_that_was_taken_for_dead_and_its_successor_do_no_row_twice(box: Box) -> None:
    """As after a server that was away for longer than the heartbeat's time.

    Prefect's worker ends when it is to start a run that it has already, and ends that run's process. Whatever restarts
    workers (systemd, a container's policy) makes the run go on; here that is the second worker.
    """
    box.begin("alive", 20.0)
    flow = box.generating("alive")
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(box.runs["alive"], Crashed(message="No heartbeat."))
    box.workers["alive"].wait(PATIENCE)
    with worker(box.server.url, box.folder, "restarted-alive", "alive"):
        eventually(lambda: box.state("alive")[0], lambda name: name == "Completed", seconds=PATIENCE)
    assert not flow.is_running()
    assert_complete(box, "alive")


def test_a_run_whose_worker_died_too_is_noticed_and_a_new_worker_ends_it(box: Box) -> None:
    eventually(lambda: box.state("dead")[0], lambda name: name != "Running", seconds=PATIENCE + WITHIN)
    with worker(box.server.url, box.folder, "reborn", "dead"):
        box.until("dead", "Completed", 2)
    assert_complete(box, "dead")


def test_a_server_that_restarts_harms_no_job_that_holds_a_slot(box: Box) -> None:
    """The last test: for 15 minutes after a restart, Prefect holds back what follows events from before."""
    box.begin("restarted", 30.0)
    flow = box.generating("restarted")
    box.server.stop(signal.SIGKILL)
    box.server.start()
    assert flow.is_running()
    box.until("restarted", "Completed", 1)
    assert_complete(box, "restarted")
