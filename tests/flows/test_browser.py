"""What a person sees of a job in the Prefect UI, in a real browser; nothing is loaded from anywhere else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.conftest import MakeJob, text_table, write_spec
from tests.flows.seen import artifacts_of, run_named
from tests.flows.server import Server
from tests.reports.test_in_browser import CHROMIUM, chromium
from tests.waiting import eventually

pytestmark = [pytest.mark.prefect, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")]

# The UI polls and never comes to rest, so a page is looked at after so many (virtual) milliseconds.
RENDERED = ("--virtual-time-budget=20000", "--timeout=20000", "--window-size=1400,1100")
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


def page(url: str, folder: Path) -> str:
    """The text of a page of the UI, once its scripts have drawn it."""
    dom = chromium(url, folder, *RENDERED, OFFLINE, "--dump-dom")
    visible = re.sub(r"<(script|style)\b.*?</\1>", " ", dom, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", visible))


def rows_done(text: str) -> int:
    found = re.search(r"([\d,]+) of 4,000 rows", text)
    assert found is not None, text[-3000:]
    return int(found[1].replace(",", ""))


def test_a_running_job_shows_its_progress(prefect_server: Server, make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(4000), name="seen-running", engine={"echo": {"tokens_per_s": 40}})
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--prefect", str(write_spec(job, tmp_path / "job.yaml"))]
    environment = {**os.environ, "PREFECT_API_URL": prefect_server.url}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: list(Path(job.output.path).glob("part-*")), bool, seconds=120)
        run = run_named("seen-running")
        progress = eventually(lambda: artifacts_of(run).get("progress"), bool)
        assert progress is not None
        shown = page(f"{prefect_server.ui}/artifacts/artifact/{progress.id}", tmp_path)
        afterwards = str(artifacts_of(run)["progress"].description)
        assert rows_done(str(progress.description)) <= rows_done(shown) <= rows_done(afterwards)
        assert "shards committed" in shown
        assert "attempt 1" in shown
        assert re.search(r"Progress: \d", shown)
        at_run = page(f"{prefect_server.ui}/runs/flow-run/{run.id}", tmp_path)
        assert "seen-running" in at_run
        assert "Running" in at_run
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)


def test_a_finished_job_shows_its_summary(prefect_server: Server, make_job: MakeJob, tmp_path: Path) -> None:
    from flows.batch_inference import run_in_process
    from tests.flows.test_batch_inference import Watcher

    job = make_job(text_table(20), name="seen-finished", cost={"usd_per_hour": 2.5})
    summary = run_in_process(job, False, Watcher())
    run = run_named("seen-finished")
    at_run = page(f"{prefect_server.ui}/runs/flow-run/{run.id}", tmp_path)
    assert "Completed" in at_run
    assert summary.message in at_run
    told = artifacts_of(run)["markdown"]
    shown = page(f"{prefect_server.ui}/artifacts/artifact/{told.id}", tmp_path)
    assert "20 of 20 rows ok" in shown
    assert re.search(r"\bok\b 20\b", shown)
    assert f"{summary.tokens.output:,}" in shown
    assert "seen-finished-summary" in page(f"{prefect_server.ui}/artifacts/key/seen-finished-summary", tmp_path)

    picture = tmp_path / "run.png"
    chromium(f"{prefect_server.ui}/v2/runs/flow-run/{run.id}?tab=Artifacts", tmp_path, *RENDERED, OFFLINE,
             f"--screenshot={picture}")  # fmt: skip
    assert imread(picture).std() > 0.05, "not blank"
