"""`make ui` and `make down`, on another port and with another home."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.ui import _marked, settings
from tests.conftest import MakeJob, text_table, write_spec
from tests.waiting import eventually, free_port

pytestmark = pytest.mark.prefect

ROOT = Path(__file__).parents[2]


class Ui:
    """The script, as the Makefile calls it."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()

    def up(self, port: int | None = None) -> subprocess.CompletedProcess[str]:
        return self._call("up", "--port", str(port or self.port))

    def down(self) -> subprocess.CompletedProcess[str]:
        return self._call("down")

    def processes(self) -> set[int]:
        return {*_marked(self.home, "server"), *_marked(self.home, "worker")}

    def read(self, path: str) -> Any:
        """What the API or the UI's own settings say."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=20) as response:
            return json.load(response)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "batchjobs.cli", *arguments], **settings(self.home, self.port))

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, str(ROOT / "scripts/ui.py"), *arguments, "--home", str(self.home)])

    def _run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        everything = {**os.environ, **environment, "PYTHONPATH": paths}
        return subprocess.run(command, env=everything, capture_output=True, text=True, timeout=300)


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    made = Ui(tmp_path / "prefect")
    yield made
    made.down()


def test_it_comes_up_once_and_goes_down_with_its_runs_in_order(ui: Ui, make_job: MakeJob, tmp_path: Path) -> None:
    first = ui.up()
    assert first.returncode == 0, first.stderr
    assert f"http://127.0.0.1:{ui.port}\n" in first.stdout.replace("   ", "\n")
    assert "created batchjobs: no heartbeat" in first.stdout
    assert f"export PREFECT_API_URL=http://127.0.0.1:{ui.port}/api" in first.stdout
    assert ui.read("ui-settings")["api_url"] == f"http://127.0.0.1:{ui.port}/api"
    shown = ui.read("api/admin/settings")["server"]
    assert shown["concurrency"]["lease_storage"].endswith("filesystem")
    assert (shown["analytics_enabled"], shown["ui"]["show_promotional_content"]) == (False, False)
    before = ui.processes()

    second = ui.up()
    assert second.returncode == 0
    assert "runs already" in second.stdout
    assert "batchjobs: " not in second.stdout, "what somebody has made of the automations stays"
    assert ui.processes() == before

    job = make_job(text_table(400), name="slow", engine={"echo": {"tokens_per_s": 40}})
    submitted = ui.command("submit", "--json", str(write_spec(job, tmp_path / "slow.yaml")))
    assert submitted.returncode == 0, submitted.stderr
    eventually(lambda: list(Path(job.output.path).glob("part-*")), bool, seconds=120)
    down = ui.down()
    assert down.returncode == 0
    assert f"flow run {json.loads(submitted.stdout)['id']} stops in order" in down.stdout
    summary = json.loads((Path(job.output.path) / "_batchjobs/summary.json").read_text())
    assert summary["state"] == "partial"
    assert "Partial('Stopped." in (ui.home / "worker.log").read_text()
    assert ui.processes() == set()

    again = ui.down()
    assert (again.returncode, again.stdout) == (0, "Nothing of `make ui` runs here.\n")


def test_a_stranger_on_the_port_is_told_of_and_survives(ui: Ui) -> None:
    code = (
        f"import http.server as h; h.HTTPServer(('127.0.0.1', {ui.port}), h.SimpleHTTPRequestHandler).serve_forever()"
    )
    stranger = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: socket.socket().connect_ex(("127.0.0.1", ui.port)), lambda error: error == 0)
        refused = ui.up()
        assert refused.returncode == 1
        assert f"Port {ui.port} cannot be had" in refused.stderr
        assert "make ui PORT=" in refused.stderr
        assert ui.processes() == set()
        assert ui.down().returncode == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
