"""The main job on the real vLLM with the real demo model: killed and resumed, and bad rows of every kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.leftovers import mark_of, marked
from batchjobs.spec import parse_job
from batchjobs.storage.attempts import read_attempts
from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from scripts.build_data import docstring_rows
from scripts.build_model import build_model
from tests.chaos import name_of
from tests.conftest import batchjobs, summary_of, write_spec

pytestmark = pytest.mark.engine

MODEL = Path("demo/model").resolve()


@pytest.fixture(scope="module", autouse=True)
def _model() -> None:
    build_model(MODEL)


def real_job(folder: Path, table: pa.Table, **sections: Any) -> JobSpec:
    """A job over one file with the demo model, small enough to start in half a minute."""
    (folder / "data").mkdir()
    pq.write_table(table, folder / "data" / "a.parquet")
    spec: dict[str, Any] = {
        "name": "real",
        "input": {"path": str(folder / "data")},
        "prompt": {"system": "You write one-line summaries.", "user": "Summarise:\n{{ text[:1000] }}"},
        "sampling": {"temperature": 0, "max_tokens": 24},
        "model": {"name": str(MODEL), "max_model_len": 512},
        "engine": {"max_num_seqs": 4, "enforce_eager": True, "kv_cache_memory_bytes": 2**28},
        "output": {"path": str(folder / "out")},
        "run": {"shard_rows": 4},
    }
    return parse_job({**spec, **sections})


def engine_processes() -> list[str]:
    """vLLM's processes, whoever started them."""
    names = []
    for process in Path("/proc").iterdir():
        try:
            names.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [name for name in names if name.startswith("VLLM::")]


def wait_for_parts(job: JobSpec, count: int, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while len(committed_shards(open_store(job.output.path))) < count:
        assert running.poll() is None, "the run ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_accounted(summary: dict[str, Any]) -> None:
    """What only a real engine tells: its own memory and KV cache, and that its seconds add up."""
    seconds = dict(summary["engine_seconds"])
    held = seconds.pop("held")
    assert sum(seconds.values()) == pytest.approx(held, rel=0.01)
    assert seconds["productive"] > 0
    assert 2**28 < summary["memory"]["host_peak_bytes"] < 2**36
    assert 0 < max(usage or 0 for usage in summary["timeline"]["kv_cache_usage"]) <= 1
    assert summary["lengths"]["prompt_tokens"]["count"] == summary["rows"]["generated"]
    assert summary["lengths"]["output_tokens"]["max"] <= 24


def test_a_job_whose_engine_is_killed_goes_on_by_itself_and_a_killed_job_goes_on_where_it_was(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(docstring_rows(60))
    job = real_job(tmp_path, table)
    file = write_spec(job, tmp_path / "job.yaml")
    command = [sys.executable, "-m", "batchjobs.cli", "run", "--no-prefect", str(file)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_parts(job, 1, running)
    (core,) = [pid for pid in marked(mark_of(job.output.path)) if name_of(pid) == "EngineCore"]
    os.kill(core, signal.SIGKILL)
    wait_for_parts(job, len(committed_shards(open_store(job.output.path))) + 2, running)  # in its second life
    assert read_attempts(open_store(job.output.path))[0].cause == "engine_died"
    running.send_signal(signal.SIGKILL)
    running.wait()
    deadline = time.monotonic() + 20
    while engine_processes():
        assert time.monotonic() < deadline, "the engine outlived its dispatcher"
        time.sleep(0.2)
    done = committed_shards(open_store(job.output.path))
    stamps = {shard: os.stat(f"{job.output.path}/part-{shard:06d}.parquet").st_mtime_ns for shard in done}

    summary = summary_of(batchjobs("run", "--no-prefect", "--json", file, timeout=300))
    assert summary["state"] == "completed"
    assert summary["rows"]["reused"] >= 4 * len(done)
    assert summary["rows"]["generated"] == 60 - summary["rows"]["reused"]
    assert stamps == {s: os.stat(f"{job.output.path}/part-{s:06d}.parquet").st_mtime_ns for s in done}
    assert summary["engine"]["kv_cache_tokens"] == 2**28 // (128 * 23_040) * 128  # as settings.capacity foresees
    assert summary["latency"]["ttft_s"]["p50"] > 0
    assert_accounted(summary)
    assert batchjobs("verify", job.output.path).returncode == 0
    results = pq.read_table(job.output.path)
    assert results["id"].to_pylist() == table["id"].to_pylist()
    assert all(results["output"].to_pylist())
    assert engine_processes() == []


def test_a_kv_cache_too_large_for_the_memory_is_recognised_lowered_and_finished(tmp_path: Path) -> None:
    python = tmp_path / "python-with-little-memory"
    python.write_text(f'#!/bin/sh\nulimit -d 5000000\nexec {sys.executable} "$@"\n')  # KiB of data, of each process
    python.chmod(0o755)
    engine = {"max_num_seqs": 4, "enforce_eager": True, "kv_cache_memory_bytes": 2**33, "python": str(python)}
    job = real_job(tmp_path, pa.Table.from_pylist(docstring_rows(4)), engine=engine)
    job = job.model_copy(update={"run": job.run.model_copy(update={"state": str(tmp_path / "state")})})
    file = write_spec(job, tmp_path / "job.yaml")
    summary = summary_of(batchjobs("run", "--no-prefect", "--json", file, timeout=400))
    assert summary["state"] == "completed"
    assert summary["attempts"][0]["cause"] == "host_oom"
    assert summary["attempts"][0]["remedy"] == f"kv_cache_memory_bytes {2**33} -> {2**32}"
    assert summary["attempts"][-1]["cause"] == "done"


def bad_rows() -> list[dict[str, Any]]:
    """Good rows among one of every kind that the real engine has a say in. `expected` is an error code or None."""
    good = {"ids": [504, 253, 216], "params": None}
    return [
        {**good, "expected": None},
        {**good, "ids": None, "expected": "null_prompt"},
        {**good, "ids": [], "expected": "empty_prompt"},
        {**good, "ids": [1, -1], "expected": "bad_token_ids"},
        {**good, "ids": [1, None], "expected": "bad_token_ids"},
        {**good, "ids": [49152], "expected": "bad_token_ids"},  # the vocabulary has 49,152
        {**good, "ids": [1] * 512, "expected": "prompt_too_long"},
        {**good, "ids": [1] * 513, "expected": "prompt_too_long"},
        {**good, "ids": [504] * 505, "expected": None},  # runs into the context
        {**good, "params": {"temperature": -1.0}, "expected": "bad_sampling"},
        {**good, "params": {"top_p": 7.0}, "expected": "bad_sampling"},
        {**good, "params": {"stop_token_ids": [10**7]}, "expected": "engine_rejected"},
        {**good, "params": {"structured_outputs": {"regex": "(unclosed"}}, "expected": "engine_rejected"},
        {
            **good,
            "params": {
                "structured_outputs": {
                    "json": '{"type": "object", "properties": {"a": {"type": "string", '
                    '"minLength": 60}}, "required": ["a"]}'
                }
            },
            "expected": "invalid_output",
        },
        {**good, "params": {"structured_outputs": {"regex": "(yes|no)"}}, "expected": None},
        {**good, "params": {"max_tokens": 1}, "expected": None},
        {**good, "expected": None},
    ]


def test_one_bad_row_costs_one_row_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    rows = bad_rows()
    job = real_job(
        tmp_path,
        pa.Table.from_pylist(rows),
        prompt={"token_ids_column": "ids"},
        sampling={"temperature": 0, "max_tokens": 24, "per_row_column": "params"},
        run={"shard_rows": 4, "max_error_rate": 1.0},
    )
    summary = summary_of(
        batchjobs("run", "--no-prefect", "--json", write_spec(job, tmp_path / "job.yaml"), timeout=300)
    )
    assert summary["state"] == "completed"
    results = pq.read_table(job.output.path).to_pylist()
    assert [row["error_code"] for row in results] == [row["expected"] for row in rows]
    assert all(row["error"] for row in results if row["status"] == "error")
    answered = [row for row in results if row["finish_reason"] in ("stop", "length")]
    health = summary["health"]
    assert (health["answers"], health["invalid"]) == (len(answered), 1)
    assert health["truncated"] == sum(row["finish_reason"] == "length" for row in answered)
    assert results[8]["warning"] == "context"
    assert results[13]["output"].startswith("{")
    assert results[14]["output"] in ("yes", "no")
    assert (results[15]["output_tokens"], results[15]["tpot_s"], results[15]["warning"]) == (1, None, "max_tokens")
    assert results[0]["output"] == results[16]["output"]
