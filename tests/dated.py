"""A job file with date variables, and the input of its dates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.conftest import text_table

WriteFile = Callable[..., Path]


def dated_job_file(folder: Path, file: str = "docs.yaml", **sections: Any) -> Path:
    """Write an echo job file whose input and output are of a date; sections are merged into it."""
    spec: dict[str, Any] = {
        "name": Path(file).stem,
        "input": {"path": "data/dt={{ ds }}"},
        "prompt": {"template": "{{ ds }}: {{ text }}"},
        "sampling": {"max_tokens": 100},
        "engine": {"kind": "echo"},
        "output": {"path": "out/dt={{ ds }}"},
        "run": {"shard_rows": 4, "state": str(folder / "state")},
    }
    for name, section in sections.items():
        spec[name] = {**spec[name], **section} if isinstance(spec.get(name), dict) else section
    path = folder / file
    path.write_text(yaml.safe_dump(spec))
    return path


def rows_of(folder: Path, day: date | str, rows: int = 6) -> None:
    """The input of a date, with a column `ds`, which is what `{{ ds }}` in the prompt means."""
    place = folder / "data" / f"dt={day}"
    place.mkdir(parents=True, exist_ok=True)
    table = text_table(rows)
    pq.write_table(table.append_column("ds", [["column"] * rows]), place / "0.parquet")
