"""Whole processes on the same rows: start, read, generate, write, end. Also killed at half-time, and at two sizes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from bench import ours
from bench.peers import datatrove_llm, ray_llm, run_batch
from bench.peers.environment import NotHere
from bench.results import Section
from bench.running import CommandFailed, Running
from bench.workloads import WORKLOADS, Workload

ROWS = 384
ROUNDS = 2
MEMORY_ROWS = 1000

Start = Callable[[Path, dict[str, Any]], Running]
Outcome = Callable[[Path], dict[str, int]]

CONTENDERS: dict[str, tuple[Start, Outcome]] = {
    "ours": (ours.start, ours.outcome),
    "run_batch": (run_batch.start, run_batch.outcome),
    "ray_tuned": (ray_llm.start_tuned, ray_llm.outcome),
    "ray_default": (ray_llm.start_default, ray_llm.outcome),
    "datatrove": (datatrove_llm.start, datatrove_llm.outcome),
}
_ONCE = ("ray_default", "datatrove")  # no target hangs on them: one run each


def measure(section: Section, rows: int | None, rounds: int | None) -> None:
    """Alternating runs of ours, run-batch and Ray tuned; the others once, at the end."""
    count = rounds or ROUNDS
    often = [name for name in CONTENDERS if name not in _ONCE]
    with _job_folder(WORKLOADS["docstrings"], rows or ROWS) as (folder, job):
        for number in range(count):
            for name in often if number % 2 == 0 else reversed(often):
                _one(section, number, name, folder, job)
        for name in _ONCE:
            _one(section, count - 1, name, folder, job)


def memory(section: Section, rows: int | None, rounds: int | None) -> None:
    """Ours and run-batch at two sizes, one four times the other, with answers of one token, so that rows are cheap."""
    short = replace(WORKLOADS["uniform"], max_tokens=1)
    for number, size in enumerate((rows or MEMORY_ROWS, 4 * (rows or MEMORY_ROWS))):
        with _job_folder(short, size) as (folder, job):
            for name in ("ours", "run_batch"):
                _one(section, number, name, folder, job)


def kill(section: Section, rows: int | None, rounds: int | None) -> None:
    """SIGKILL when half of the rows are answered; ours is then run again. `kept`: answered rows that need no engine."""
    total = rows or ROWS
    with _job_folder(WORKLOADS["docstrings"], total) as (folder, job):
        done = ours.kill_at_half(ours.start(folder, job), total, lambda: ours.rows_done(folder))
        ours.start(folder, job).finish()
        kept = ours.summary(folder)["rows"]["reused"]
        section.add({"contender": "ours", "rows": total, "answered": done, "kept": kept})
        running = run_batch.start(folder, job)
        done = ours.kill_at_half(running, total, lambda: run_batch.rows_done(running.printed()))
        kept = run_batch.outcome(folder)["rows"]
        section.add({"contender": "run_batch", "rows": total, "answered": done, "kept": kept})


def demo(section: Section, rows: int | None, rounds: int | None) -> None:
    """The demo's settings: 32 slots, shards of 32 rows, answers of up to 48 tokens."""
    like_demo = replace(WORKLOADS["docstrings"], max_tokens=48, run={"shard_rows": 32}, slots=32)
    with _job_folder(like_demo, rows or 256) as (folder, job):
        took = ours.start(folder, job).finish()
        section.add({"seconds": took.wall_s, **ours.outcome(folder), "laps": ours.summary(folder)["seconds"]})


def _one(section: Section, number: int, name: str, folder: Path, job: dict[str, Any]) -> None:
    start, outcome = CONTENDERS[name]
    _clear(folder)
    try:
        took = start(folder, job).finish()
        figures = {"seconds": took.wall_s, "tree_bytes": took.tree_bytes, "largest_bytes": took.largest_bytes,
                   "peaks": took.peaks}  # fmt: skip
        section.add({"round": number, "contender": name, **figures, **outcome(folder)})
    except NotHere as reason:
        section.skip(f"{name}: {reason}")
    except CommandFailed as failure:
        section.fail(f"{name}: {failure}")


@contextmanager
def _job_folder(workload: Workload, rows: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder with data and job, and the job."""
    with tempfile.TemporaryDirectory() as name:
        file = workload.write(Path(name), rows)
        yield Path(name), yaml.safe_load(file.read_text())


def _clear(folder: Path) -> None:
    for made in folder.iterdir():
        if made.name not in ("data", "job.yaml"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
