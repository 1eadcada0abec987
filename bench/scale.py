"""A million rows through the echo engine: what batchjobs itself costs, in time and memory.

Targets on 2 cores: under 3 minutes, no process above 1.5 GB, the finished job repeated in under 3 seconds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.running import batchjobs

_TEXT = "lorem ipsum dolor sit amet, consectetur adipiscing elit "


def measure(rows: int) -> None:
    """Print time and memory for 100 files, and for one file with a single row group."""
    for title, files in (("100 files", 100), ("one file, one row group", 1)):
        with tempfile.TemporaryDirectory() as folder:
            job = write_job(Path(folder), rows, files)
            first = batchjobs("run", "--no-prefect", "--json", job)
            again = batchjobs("run", "--no-prefect", "--json", job)
            print(
                f"echo, {rows:,} rows in {title}: {first.wall_s:.1f} s ({rows / first.wall_s:,.0f} rows/s), largest "
                f"process {first.peak_bytes / 1e6:,.0f} MB; repeated in {again.wall_s:.2f} s"
            )


def write_job(folder: Path, rows: int, files: int) -> Path:
    """The dataset and its job file."""
    (folder / "data").mkdir()
    for number in range(files):
        ids = range(number * rows // files, (number + 1) * rows // files)
        table = pa.table({"id": pa.array(ids), "text": [f"row {n}: {_TEXT}" for n in ids]})
        pq.write_table(table, folder / "data" / f"{number:03d}.parquet", row_group_size=len(ids))
    file = folder / "job.yaml"
    file.write_text(
        "name: scale\ninput: {path: data}\nprompt: {column: text}\nsampling: {max_tokens: 32}\n"
        "engine: {kind: echo}\noutput: {path: out}\n"
    )
    return file
