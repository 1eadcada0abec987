"""batchjobs as people call it, and killing whatever runs at half-time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.running import CommandFailed, Running


def batchjobs(*arguments: str | Path) -> Running:
    """Start the command of this checkout."""
    return Running(sys.executable, "-m", "batchjobs.cli", *arguments)


def start(folder: Path, job: dict[str, Any]) -> Running:
    """Run the job of a job folder."""
    return batchjobs("run", "--no-prefect", "--json", folder / "job.yaml")


def summary(folder: Path) -> dict[str, Any]:
    """What the last run of a job folder left."""
    found: dict[str, Any] = json.loads((folder / "out" / "_batchjobs" / "summary.json").read_text())
    return found


def outcome(folder: Path) -> dict[str, int]:
    """Rows and tokens of the output."""
    found = summary(folder)
    tokens = found["tokens"]
    return {"rows": found["rows"]["ok"], "prompt_tokens": tokens["prompt"], "output_tokens": tokens["output"]}


def rows_done(folder: Path) -> int:
    """Rows with a result, as of the last second."""
    try:
        return int(json.loads((folder / "out" / "_batchjobs" / "progress.json").read_text())["rows_done"])
    except FileNotFoundError:
        return 0


def kill_at_half(running: Running, rows: int, done: Callable[[], int]) -> int:
    """SIGKILL when half of the rows are done; returns how many were. Raises CommandFailed if it ends before."""
    while (count := done()) < rows / 2:
        if running.ended():
            raise CommandFailed(f"it ended before half of its rows were seen to be done:\n{running.printed()[-2000:]}")
        time.sleep(0.05)
    running.kill()
    return count
