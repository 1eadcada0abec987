#!/usr/bin/env python3
"""Write the demo's data set: the docstrings of Python's own standard library, as Parquet files.

Columns: id (string, such as "json.dumps"), module (string), kind (module, class, function or method), text (string),
chars (int32, the characters of `text`). Real text with a real skew of lengths, and nothing to download. The same
interpreter always writes the same rows in the same order.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("module", pa.string()),
        ("kind", pa.string()),
        ("text", pa.string()),
        ("chars", pa.int32()),
    ]
)


class DataError(Exception):
    """The data set cannot be built as asked; nothing was changed."""


def docstring_rows(rows: int | None = None) -> list[dict[str, Any]]:
    """Return the first `rows` docstrings (all, if None) as one dict per row with the columns of `SCHEMA`.

    The modules are imported in a short-lived process without site-packages, input or display, in an empty folder.
    Raises DataError if there are fewer than `rows`.
    """
    script = Path(__file__).with_name("stdlib_docstrings.py")
    environment = {key: value for key, value in os.environ.items() if key not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", str(script)],
            cwd=empty,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
    if done.returncode:
        raise DataError(f"reading the docstrings failed in {script.name}:\n{done.stderr}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if rows is not None and rows > len(found):
        raise DataError(f"this Python's standard library has {len(found):,} docstrings, fewer than {rows:,} rows")
    return found[:rows]


def split_unevenly(count: int, files: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) for `files` runs of rows whose sizes are as 1 : 2 : 3 …, together `count` rows."""
    shares = files * (files + 1) // 2
    bounds = [count * (k * (k + 1) // 2) // shares for k in range(files + 1)]
    yield from itertools.pairwise(bounds)


def build_data(dest: Path, rows: int | None = None, files: int = 4) -> int:
    """Write the first `rows` docstrings (all, if None) as `files` Parquet files into the new folder `dest`.

    The folder appears complete or not at all. Returns its number of rows. A folder that holds that many rows already is
    left as it is; DataError is raised if it holds another number.
    """
    if dest.exists():
        return check_existing(dest, rows)
    found = docstring_rows(rows)
    dest.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{dest.name}-", dir=dest.parent))
    try:
        for number, (start, stop) in enumerate(split_unevenly(len(found), files)):
            table = pa.Table.from_pylist(found[start:stop], schema=SCHEMA)
            pq.write_table(table, building / f"docstrings-{number:02d}.parquet", compression="zstd")
        building.chmod(0o755)
        building.rename(dest)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return len(found)


def count_rows(folder: Path) -> int:
    """Return the rows of the Parquet files in `folder`, from their footers."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def check_existing(dest: Path, rows: int | None) -> int:
    """Return the rows that `dest` holds; raise DataError if `rows` were asked for and it holds another number."""
    existing = count_rows(dest)
    if rows is not None and existing != rows:
        raise DataError(f"{dest} holds {existing:,} rows, not {rows:,}; remove the folder to build it anew")
    return existing


def main() -> int:
    """Parse the command line and build; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, help="folder to create")
    parser.add_argument("--rows", type=int, help="how many rows (default: all, about 6,700)")
    parser.add_argument("--files", type=int, default=4, help="how many files, of different sizes (default: 4)")
    args = parser.parse_args()
    if args.files < 1 or (args.rows is not None and args.rows < 1):
        parser.error("--rows and --files must be 1 or more")
    try:
        rows = build_data(args.dest, args.rows, args.files)
    except DataError as error:
        print(f"build_data: {error}", file=sys.stderr)
        return 2
    print(f"data: {rows:,} rows in {len(list(args.dest.glob('*.parquet')))} files in {args.dest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
