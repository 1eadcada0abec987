"""The messages of a row, for peers that read no job files. That they are the same, the counted prompt tokens show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Template


def all_messages(folder: Path, job: dict[str, Any]) -> list[list[dict[str, str]]]:
    """The chat of each row of a job folder."""
    templates = {role: Template(text) for role, text in job["prompt"].items()}
    rows = pq.read_table(folder / "data").to_pylist()
    return [[{"role": role, "content": made.render(row)} for role, made in templates.items()] for row in rows]


def write_messages(folder: Path, job: dict[str, Any]) -> Path:
    """A Parquet file of row numbers and chats, these as JSON text, which no reader changes."""
    texts = [json.dumps(messages) for messages in all_messages(folder, job)]
    file = folder / "messages.parquet"
    pq.write_table(pa.table({"row": pa.array([str(n) for n in range(len(texts))]), "messages": texts}), file)
    return file
