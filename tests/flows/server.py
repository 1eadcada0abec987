"""A Prefect server and its workers as an operator starts them, with short loops, in a home of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import eventually, free_port

# What an operator has in minutes, in seconds. The lease storage is what keeps jobs alive over a restart of the server.
_SHORT = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_FOREMAN_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "0.5",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
}
_WORKER = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_HEARTBEAT_SECONDS": "5",
           "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}  # fmt: skip


class Server:
    """`prefect server start` on a port that it keeps over restarts."""

    def __init__(self, home: Path) -> None:
        self.home, self._port = home, free_port()
        self.url = f"http://127.0.0.1:{self._port}/api"
        self.ui = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._process = _start(["server", "start", "--host", "127.0.0.1", "--port", str(self._port)],
                               self.home / "server.log", {**_SHORT, "PREFECT_HOME": str(self.home),
                                "PREFECT_UI_API_URL": self.url})  # fmt: skip
        eventually(lambda: self.answers() or self._process.poll() is not None, bool, seconds=120)
        assert self._process.poll() is None, (self.home / "server.log").read_text()

    def answers(self) -> bool:
        """Whether its API does."""
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=1) as response:
            return bool(response.status == 200)
        return False

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> None:
        """End it (SIGKILL: as a crash does)."""
        if self._process is not None:
            end(self._process, signum)
            self._process = None


@contextmanager
def own_server(home: Path) -> Iterator[Server]:
    """A server that a test may kill."""
    server = Server(home)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGKILL)


@contextmanager
def worker(
    url: str, folder: Path, name: str = "gpu0", pool: str = "gpu", **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`prefect worker start --limit 1` for a process pool, from `folder`, where its log (`NAME.log`) goes.

    The worker leads a process group; each flow run has a group of its own.
    """
    arguments = ["worker", "start", "--pool", pool, "--type", "process", "--name", name, "--limit", "1"]
    process = _start(arguments, folder / f"{name}.log", {**_WORKER, "PREFECT_API_URL": url, **environment}, folder)
    try:
        yield process
    finally:
        end(process, signal.SIGTERM)


def _start(
    arguments: list[str], log: Path, environment: dict[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "prefect", *arguments], stdout=stream, stderr=stream, start_new_session=True,
            cwd=folder, env={**os.environ, "PYTHONPATH": paths, **environment},
        )  # fmt: skip


def end(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    """Ask it to leave; after 30 seconds its group is killed, and at once with SIGKILL."""
    if process.poll() is None and signum != signal.SIGKILL:
        process.send_signal(signum)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
