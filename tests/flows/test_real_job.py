"""The main job, end to end: the command, the flow, the real vLLM, and what a Prefect server then shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.build_data import docstring_rows
from tests.conftest import write_spec
from tests.flows.seen import artifacts_of, log_of, run_named, tasks_of
from tests.test_real_engine import real_job

pytestmark = [pytest.mark.engine, pytest.mark.prefect]


def test_a_dataset_through_the_flow_and_the_real_engine(tmp_path: Path, prefect_api: str) -> None:
    job = real_job(tmp_path, pa.Table.from_pylist(docstring_rows(24)), name="real-docs", cost={"usd_per_hour": 2.5})
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--json", str(write_spec(job, tmp_path / "job.yaml"))]
    environment = {**os.environ, "PREFECT_API_URL": prefect_api}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["state"], summary["rows"]["ok"]) == ("completed", 24)

    run = run_named("real-docs")
    assert run.state is not None
    assert run.state.name == "Completed"
    assert sorted(tasks_of(run)) == ["plan", "run", "summarise"]
    shown = artifacts_of(run)
    assert "24 of 24 rows" in str(shown["progress"].description)
    assert "per 1M output tokens" in str(shown["markdown"].data)
    assert any("KV cache size" in line.message for line in log_of(run))
    results = pq.read_table(job.output.path)
    assert all(results["output"].to_pylist())
    assert set(results["status"].to_pylist()) == {"ok"}
