"""The log of a flow run holds the lines of its own replicas, whoever else runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeJob, write_spec
from tests.flows.seen import log_of, run_named

pytestmark = pytest.mark.prefect


def test_two_jobs_at_once_log_each_under_its_own_flow_run(make_job: MakeJob, prefect_api: str, tmp_path: Path) -> None:
    broken = {"left": "no left device", "right": "no right device"}
    commands = []
    for name, cause in broken.items():
        engine = {"echo": {"fail_at_start": cause}}
        output = {"path": str(tmp_path / f"out-{name}")}
        job = make_job(name=name, engine=engine, output=output, run={"max_restarts": 1})
        file = write_spec(job, tmp_path / f"{name}.yaml")
        commands.append([sys.executable, "-m", "batchjobs.cli", "run", "--prefect", str(file)])
    environment = {**os.environ, "PREFECT_API_URL": prefect_api}
    quiet = subprocess.DEVNULL
    running = [subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) for command in commands]
    assert [process.wait(120) for process in running] == [1, 1]
    for name, other in (("left", "right"), ("right", "left")):
        lines = [line.message for line in log_of(run_named(name))]
        assert any(broken[name] in line for line in lines)
        assert not any(broken[other] in line for line in lines)
