"""Two real engines side by side on the cores of this machine: the rows and the text of one engine.

In float32: in bfloat16 greedy texts depend on what is in a batch together, and two engines make other batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.leftovers import mark_of, marked
from batchjobs.spec import parse_job
from schemas.job import JobSpec
from scripts.build_data import docstring_rows
from scripts.build_model import build_model
from tests.conftest import batchjobs, read_output, summary_of, write_spec

pytestmark = pytest.mark.engine

MODEL = Path("demo/model").resolve()
ROWS = 96


def job_with(folder: Path, replicas: int, max_num_seqs: int) -> JobSpec:
    return parse_job({
        "name": "replicas",
        "input": {"path": str(folder / "data")},
        "prompt": {"system": "You write one-line summaries.", "user": "Summarise:\n{{ text[:300] }}"},
        "sampling": {"temperature": 0, "max_tokens": 24},
        "model": {"name": str(MODEL), "max_model_len": 256, "dtype": "float32"},
        "engine": {
            "replicas": replicas, "max_num_seqs": max_num_seqs, "enforce_eager": True, "kv_cache_memory_bytes": 2**28,
        },
        "output": {"path": str(folder / f"out-{replicas}")},
        "run": {"shard_rows": 4},
    })  # fmt: skip


def run(job: JobSpec, folder: Path) -> dict[str, Any]:
    done = batchjobs("run", "--no-prefect", "--json", write_spec(job, folder / "job.yaml"), timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return summary_of(done)


def test_two_engines_share_the_rows_and_write_what_one_would(tmp_path: Path) -> None:
    build_model(MODEL)
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(docstring_rows(ROWS)), tmp_path / "data" / "a.parquet")
    # Two slots each, so that the first engine is not done before the second one has started.
    two, one = job_with(tmp_path, 2, max_num_seqs=2), job_with(tmp_path, 1, max_num_seqs=16)
    summary = run(two, tmp_path)
    assert (summary["rows"]["ok"], summary["rows"]["generated"], summary["engine"]["replicas"]) == (ROWS, ROWS, 2)
    assert [attempt["cause"] for attempt in summary["attempts"]] == ["done", "done"]
    assert all(attempt["rows_done"] > 0 for attempt in summary["attempts"]), "both have worked"
    assert marked(mark_of(two.output.path)) == []
    assert run(one, tmp_path)["rows"]["ok"] == ROWS
    columns = ["row", "output", "finish_reason", "output_tokens", "request_hash"]
    assert read_output(two).select(columns).equals(read_output(one).select(columns))
