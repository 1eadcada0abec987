"""The runner without a model: rows per second, memory, time to the first request, and time to resume, with `echo`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.ours import batchjobs, kill_at_half, rows_done
from bench.results import Section
from bench.running import CommandFailed, Measured
from bench.workloads import write_job

ROWS = 1_000_000
ROUNDS = 3
_TEXT = "lorem ipsum dolor sit amet, consectetur adipiscing elit "
_REPLICA_ROWS, _REPLICA_TOKENS_PER_S = 20_000, 32_000


@dataclass(frozen=True)
class Shape:
    """A dataset, and how it is cut."""

    title: str
    rows: int
    files: int = 100  # each one row group
    shards: int | None = None  # default: shards of 4,096 rows


def shapes(rows: int) -> list[Shape]:
    """Sizes from a hundredth to four times `rows`, then `rows` in other shapes."""
    return [
        Shape("100 files", rows // 100),
        Shape("100 files", rows // 10),
        Shape("100 files", rows),
        Shape("100 files", 4 * rows),
        Shape("100 files, 10,000 shards", rows, shards=10_000),
        Shape("1,000 files", rows, files=1000),
        Shape("one file, one row group", rows, files=1),
    ]


def scale(section: Section, rows: int | None, rounds: int | None) -> None:
    """Each shape once; a run of its own, and the finished job repeated."""
    for shape in shapes(rows or ROWS):
        with _job_folder(shape) as job:
            try:
                first, again = _run(job), _run(job)
            except CommandFailed as failure:
                section.fail(f"{shape.rows:,} rows in {shape.title}: {failure}")
                continue
            section.add({"shape": shape.title, "rows": shape.rows, **_figures(first), "repeated_s": again.wall_s})


def resume(section: Section, rows: int | None, rounds: int | None) -> None:
    """SIGKILL when half of the rows are done, and the same command again."""
    shape = Shape("100 files", rows or ROWS)
    with _job_folder(shape) as job:
        done = kill_at_half(batchjobs("run", "--no-prefect", job), shape.rows, lambda: rows_done(job.parent))
        again = _run(job)
        reused = json.loads(again.stdout)["rows"]["reused"]
        killed = {"done_at_kill": done, "reused": reused}
        section.add({"shape": shape.title, "rows": shape.rows, **killed, **_figures(again)})


def replicas(section: Section, rows: int | None, rounds: int | None) -> None:
    """The same rows with one replica and with two, where the engine's speed is the limit: 1,000 rows/s each."""
    shape = Shape("8 files", rows or _REPLICA_ROWS, files=8, shards=80)
    for number in range(rounds or ROUNDS):
        for count in (1, 2) if number % 2 == 0 else (2, 1):
            engine = {"replicas": count, "max_num_seqs": 64, "echo": {"tokens_per_s": _REPLICA_TOKENS_PER_S}}
            with _job_folder(shape, engine) as job:
                took = _run(job)
                section.add({"round": number, "contender": str(count), "rows": shape.rows, **_figures(took)})


def _run(job: Path) -> Measured:
    return batchjobs("run", "--no-prefect", "--json", job).finish()


def _figures(took: Measured) -> dict[str, Any]:
    """`first_s`: from the start of the command to the first request fed."""
    seconds = json.loads(took.stdout)["seconds"]
    return {"seconds": took.wall_s, "generating_s": seconds["generating"], "finish_s": seconds["finish"],
            "first_s": took.wall_s - seconds["generating"] - seconds["finish"],
            "largest_bytes": took.largest_bytes, "tree_bytes": took.tree_bytes, "peaks": took.peaks}  # fmt: skip


@contextmanager
def _job_folder(shape: Shape, engine: dict[str, Any] | None = None) -> Iterator[Path]:
    """A folder with the dataset and its job file; each text has 68 to 74 characters, each answer 32 tokens."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        for number in range(shape.files):
            ids = range(number * shape.rows // shape.files, (number + 1) * shape.rows // shape.files)
            table = pa.table({"id": pa.array(ids), "text": [f"row {n:07}: {_TEXT}" for n in ids]})
            pq.write_table(table, folder / "data" / f"{number:04d}.parquet", row_group_size=max(1, len(ids)))
        yield write_job(
            folder,
            {
                "name": "echo",
                "input": {"path": "data"},
                "prompt": {"column": "text"},
                "sampling": {"temperature": 0, "max_tokens": 32},
                "engine": {"kind": "echo", **(engine or {})},
                "output": {"path": "out"},
                "run": {"shard_rows": max(1, shape.rows // shape.shards) if shape.shards else 4096},
            },
        )
