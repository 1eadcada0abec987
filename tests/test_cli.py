"""The command as people call it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.main import get_command

from batchjobs.cli import app
from batchjobs.describe import describe
from batchjobs.init import job_file_text
from batchjobs.spec import parse_job
from tests.conftest import MakeJob, batchjobs, run_here, summary_of, text_table, write_spec

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = "{'prefect', 'vllm', 'torch', 'transformers', 'pyarrow', 'polars'}"
    code = f"import sys, batchjobs.cli; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_is_in_the_readme(command: str) -> None:
    shown = batchjobs(command, "--help")
    assert shown.returncode == 0
    assert len(shown.stdout) > 200
    assert f"batchjobs {command}" in Path("README.md").read_text()


def test_run_prints_a_summary_for_people_and_json_for_machines(make_job: MakeJob, tmp_path: Path) -> None:
    file = write_spec(make_job(cost={"usd_per_hour": 2.5}), tmp_path / "job.yaml")
    text = batchjobs("run", "--no-prefect", file)
    assert text.returncode == 0
    for word in ("completed", "requests/s", "output tokens/s", "P99", "wall clock", "per 1,000 rows", "per 1M output"):
        assert word in text.stdout
    again = batchjobs("run", "--no-prefect", "--json", file)
    assert summary_of(again)["rows"]["ok"] == 10


def test_a_bad_job_file_exits_2_and_writes_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    file = write_spec(make_job(), tmp_path / "job.yaml")
    spec = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**spec, "runn": {}}))
    result = batchjobs("run", "--no-prefect", file)
    assert result.returncode == 2
    assert "runn: unknown key; did you mean run?" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_limit_is_a_job_of_its_own(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(10))
    file = write_spec(job, tmp_path / "job.yaml")
    assert summary_of(batchjobs("run", "--no-prefect", "--json", "--limit", "3", file))["rows"]["total"] == 3
    assert not Path(job.output.path).exists()
    assert pq.read_table(f"{job.output.path}-limit-3")["row"].to_pylist() == [0, 1, 2]


def test_plan_shows_rows_files_and_shards_and_writes_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(10), text_table(5))
    file = write_spec(job, tmp_path / "job.yaml")
    found = json.loads(batchjobs("plan", "--json", file).stdout)
    assert (found["rows"], found["files"], found["shards"]) == (15, 2, 4)
    assert found["prompt_tokens"].keys() >= {"mean", "p50", "p95", "p99", "max"}
    assert found["problems"].keys() >= {"null", "empty", "duplicate", "too_long"}
    assert found["capacity"].keys() >= {
        "weights_bytes", "kv_bytes_per_token", "kv_cache_tokens", "max_concurrent_sequences", "recommended",
    }  # fmt: skip
    assert found["estimate"].keys() >= {"seconds", "usd", "basis"}
    assert found["problems"]["duplicate"] == 5
    shown = batchjobs("plan", "--full", file)
    assert shown.stdout.startswith("test: 15 rows in 2 files, 4 shards, to ")
    assert "Problems in all 15 rows" in shown.stdout
    assert not Path(job.output.path).exists()


def test_plan_refuses_a_device_that_nobody_knows(make_job: MakeJob, tmp_path: Path) -> None:
    shown = batchjobs("plan", "--device", "Abacus", write_spec(make_job(), tmp_path / "job.yaml"))
    assert shown.returncode == 2
    assert "--device: found Abacus; allowed: cpu, T4" in shown.stderr


def test_try_shows_prompt_and_answer_and_writes_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(prompt={"system": "Be brief.", "user": "Say {{ text }}"})
    shown = batchjobs("try", "-n", "2", "--json", write_spec(job, tmp_path / "job.yaml"))
    pairs = json.loads(shown.stdout)
    assert [pair["prompt"] for pair in pairs] == [f"system: Be brief.\nuser: Say text {n}" for n in range(2)]
    assert pairs[0]["output"] == pairs[0]["prompt"]
    assert not Path(job.output.path).exists()
    assert "Say text 1" in batchjobs("try", "-n", "2", tmp_path / "job.yaml").stdout


def test_init_writes_a_job_file_that_is_valid_and_never_overwrites(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job()
    file = tmp_path / "new" / "job.yaml"
    file.parent.mkdir()
    assert batchjobs("init", job.input.path, "-o", file).returncode == 0
    assert "{{ text }}" in file.read_text()
    assert "id_column: id" in file.read_text()
    spec = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**spec, "engine": {"kind": "echo"}, "model": None}))
    assert batchjobs("plan", file).returncode == 0
    again = batchjobs("init", job.input.path, "-o", file)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_schema_is_a_json_schema_with_every_section() -> None:
    schema = json.loads(batchjobs("schema").stdout)
    assert set(schema["properties"]) == {
        "name", "input", "prompt", "sampling", "model", "engine", "output", "run", "cost", "baseline",
            "date",
    }  # fmt: skip


def test_status_tells_state_and_progress_from_the_files_alone(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    assert json.loads(batchjobs("status", "--json", job.output.path).stdout)["state"] == "completed"
    assert batchjobs("status", "/nowhere").returncode == 2


@pytest.mark.parametrize(
    ("name", "column"),
    [("2024", "my text"), ("my #1 data: x", "range"), ("yes", 'te"xt'), ("null", "123"), ("-", "a.b")],
)
def test_init_writes_valid_yaml_whatever_things_are_called(tmp_path: Path, name: str, column: str) -> None:
    pq.write_table(pa.table({column: ["x"]}), tmp_path / f"{name}.parquet")
    schema = pq.read_schema(tmp_path / f"{name}.parquet")
    spec = yaml.safe_load(job_file_text(str(tmp_path / f"{name}.parquet"), schema))
    job = parse_job({**spec, "engine": {"kind": "echo"}, "model": None, "output": {"path": str(tmp_path / "out")}})
    assert job.input.path == str(tmp_path / f"{name}.parquet")
    assert describe(job).rows == 1


def test_try_says_so_when_the_engine_fails(make_job: MakeJob, tmp_path: Path) -> None:
    file = write_spec(make_job(engine={"echo": {"fail_at_start": "boom"}}), tmp_path / "job.yaml")
    result = batchjobs("try", file)
    assert result.returncode == 1
    assert "boom" in result.stderr
