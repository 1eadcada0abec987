#!/usr/bin/env python3
"""A Prefect of this checkout's own: `up` starts a server with UI, the deployments and a worker; `down` ends them.

Everything it keeps is in one folder (database, leases, logs). What it starts carries a mark in its environment, which
flow runs inherit: that is how `down` finds it, and nothing else. It listens on loopback only.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "demo/job.yaml"  # the nightly deployment's job file, once `make demo` has written it

HOME_MARK, ROLE_MARK, PORT_MARK = "BATCHJOBS_UI_HOME", "BATCHJOBS_UI_ROLE", "BATCHJOBS_UI_PORT"
_RUN = "PREFECT__FLOW_RUN_ID"  # in the environment of a flow run and of what it starts
_START_S = 120  # the first start migrates an empty database
_DRAIN_S = 60  # a flow run drains for 20 s at most, then writes its summary and report
_SERVER_S = 30


class RefusedError(Exception):
    """It cannot be done as asked; what runs was left alone."""


def settings(home: Path, port: int) -> dict[str, str]:
    """The environment of the server and of what works for it."""
    return {
        "PREFECT_HOME": str(home),
        # Prefect 3.7 looks for these two under ~/.prefect even when PREFECT_HOME is another folder.
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": f"{home}/storage",
        "PREFECT_SERVER_MEMO_STORE_PATH": f"{home}/memo_store.toml",
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",  # else the browser asks port 4200, whatever --port says
        "PREFECT_UI_URL": f"http://127.0.0.1:{port}",
        # With leases in memory, a restart of the server would end every running job.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "DO_NOT_TRACK": "1",
        HOME_MARK: str(home),
        PORT_MARK: str(port),
    }


def up(home: Path, port: int) -> None:
    """Start what does not run yet, and wait until all of it answers. Raises RefusedError."""
    running = next((its.port for its in _marked(home, "server").values()), None)
    if running not in (None, port):
        raise RefusedError(f"It runs already, on port {running}. To move it: make down && make ui PORT={port}")
    if running is None:
        _check_free(port)
        _start(home, port, "server", ["server", "start", "--host", "127.0.0.1", "--port", str(port)])
    _wait_for(lambda: _answers(port), home, "server")
    os.environ.update(settings(home, port))  # before Prefect is imported, which reads its settings then
    from batchjobs.errors import Refused
    from flows.automations import at_server_start
    from flows.deploy import deploy

    try:
        for name in deploy(ROOT, [EXAMPLE] if (ROOT / EXAMPLE).is_file() else []):
            print(f"  deployed {name}")
        for name, change in at_server_start().items():
            print(f"  {change} {name}")
    except Refused as error:
        raise RefusedError(str(error)) from None
    ran = running is not None and bool(_marked(home, "worker"))
    if not _marked(home, "worker"):
        worker = ["worker", "start", "--pool", "gpu", "--type", "process", "--name", "local", "--limit", "1"]
        _start(home, port, "worker", worker)
    _wait_for(_worker_is_online, home, "worker")
    print(f"Prefect {'runs already' if ran else 'runs'}: http://127.0.0.1:{port}   (logs and database: {home})")
    print("For batchjobs and prefect in this shell:")
    print(f"export PREFECT_API_URL=http://127.0.0.1:{port}/api")


def down(home: Path) -> None:
    """End what `up` has started: first flow runs, in order (they drain) with the worker, then the server."""
    ended = [role for role, patience in (("worker", _DRAIN_S), ("server", _SERVER_S)) if _stop(home, role, patience)]
    print(f"Stopped: {', '.join(ended)}. What they kept is in {home}." if ended else "Nothing of `make ui` runs here.")


def _check_free(port: int) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended is no obstacle
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            raise RefusedError(
                f"Port {port} cannot be had: {error.strerror}. What listens there was not started by `make ui` of this "
                f"checkout, so it is left alone and nothing was started. Choose another port: make ui PORT={port + 100}"
            ) from None


def _start(home: Path, port: int, role: str, arguments: list[str]) -> None:
    log = home / f"{role}.log"
    print(f"  starting the {role}")
    with log.open("ab") as stream:
        subprocess.Popen(
            [sys.executable, "-m", "prefect", *arguments], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True, cwd=home, env={**os.environ, **settings(home, port), ROLE_MARK: role},
        )  # fmt: skip


def _wait_for(ready: Callable[[], bool], home: Path, role: str) -> None:
    deadline = time.monotonic() + _START_S
    while not ready():
        if not _marked(home, role) or time.monotonic() > deadline:
            last = "\n".join((home / f"{role}.log").read_text(errors="replace").splitlines()[-20:])
            raise RefusedError(f"The {role} does not answer. Its log, {home / f'{role}.log'}, ends with:\n{last}")
        time.sleep(0.3)


def _answers(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2) as response:
        return bool(response.status == 200)
    return False


def _worker_is_online() -> bool:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import WorkerStatus

    with get_client(sync_client=True) as client:
        workers = client.read_workers_for_work_pool("gpu")
    return any(worker.name == "local" and worker.status == WorkerStatus.ONLINE for worker in workers)


def _stop(home: Path, role: str, patience_s: float) -> bool:
    """Ask each once (a second SIGTERM would end a draining job at once); kill what is left after `patience_s` seconds.

    Flow runs before their worker: a worker of Prefect 3.7 that is asked to leave kills them, and they stay "Running".
    """
    asked: set[int] = set()
    began = time.monotonic()
    while found := _marked(home, role):
        if time.monotonic() > began + patience_s:
            print(f"  killing what is left of the {role}: its time of {patience_s:.0f} s is over")
            _send(signal.SIGKILL, found)
        heads = {pid for pid, its in found.items() if its.parent not in found or found[its.parent].run != its.run}
        runs = {pid for pid in heads if found[pid].run}
        due = (runs or heads) - asked
        for pid in due & runs:
            print(f"  flow run {found[pid].run} stops in order; what is committed stays")
        _send(signal.SIGTERM, due)
        asked |= due
        time.sleep(0.2)
    return bool(asked)


def _send(signum: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


@dataclass(frozen=True)
class _Process:
    parent: int
    port: int  # of the server
    run: str | None  # the flow run that it works for


def _marked(home: Path, role: str) -> dict[int, _Process]:
    """Processes that were started for this home in that role, and their children, by number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = dict(
                os.fsdecode(line).partition("=")[::2] for line in (folder / "environ").read_bytes().split(b"\0")
            )
            if (told.get(HOME_MARK), told.get(ROLE_MARK)) == (str(home), role):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(folder.name)] = _Process(parent, int(told[PORT_MARK]), told.get(_RUN))
    return found


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One `up` or `down` at a time."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--port", type=int, default=4200, help="of the UI and the API; default 4200")
    parser.add_argument("--home", type=Path, default=ROOT / ".prefect", help="folder that keeps it; default .prefect")
    given = parser.parse_args()
    home = given.home.resolve()
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]  # the shell speaks of another server; for this one, there is profiles.toml in its home
    try:
        with _alone(home):
            up(home, given.port) if given.what == "up" else down(home)
    except RefusedError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
