"""How long the commands take that people wait for. Targets: `--help` and `status` under half a second."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.running import batchjobs

_TIMES = 5


def measure() -> None:
    """Print the median of a few calls of each."""
    with tempfile.TemporaryDirectory() as folder:
        job = small_job(Path(folder))
        batchjobs("run", "--no-prefect", job)
        for arguments in (("--help",), ("status", f"{folder}/out"), ("plan", str(job)), ("verify", f"{folder}/out")):
            seconds = [batchjobs(*arguments).wall_s for _ in range(_TIMES)]
            print(f"batchjobs {arguments[0]:<8} median {statistics.median(seconds):.2f} s of {_TIMES} calls")


def small_job(folder: Path) -> Path:
    """A finished thing to look at."""
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(1000)]}), folder / "data.parquet")
    file = folder / "job.yaml"
    file.write_text(
        "name: small\ninput: {path: data.parquet}\nprompt: {column: text}\nsampling: {max_tokens: 8}\n"
        "engine: {kind: echo}\noutput: {path: out}\nrun: {shard_rows: 100}\n"
    )
    return file
