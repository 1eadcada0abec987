"""How long the commands take that people wait for, on a finished job of a thousand rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.ours import batchjobs
from bench.results import Section
from bench.workloads import write_job

ROUNDS = 5


def measure(section: Section, rows: int | None, rounds: int | None) -> None:
    """A few calls of each."""
    with tempfile.TemporaryDirectory() as folder:
        job = _small_job(Path(folder), rows or 1000)
        batchjobs("run", "--no-prefect", job).finish()
        for number in range(rounds or ROUNDS):
            for line in ("--help", f"status {folder}/out", f"plan {job}", f"verify {folder}/out"):
                seconds = batchjobs(*line.split()).finish().wall_s
                section.add({"round": number, "contender": line.split()[0], "seconds": seconds})


def _small_job(folder: Path, rows: int) -> Path:
    (folder / "data").mkdir()
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(rows)]}), folder / "data" / "rows.parquet")
    return write_job(
        folder,
        {
            "name": "small",
            "input": {"path": "data"},
            "prompt": {"column": "text"},
            "sampling": {"max_tokens": 8},
            "engine": {"kind": "echo"},
            "output": {"path": "out"},
            "run": {"shard_rows": 100},
        },
    )
