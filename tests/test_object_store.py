"""Input and output on S3, over HTTP."""

from __future__ import annotations

from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.spec import parse_job
from batchjobs.storage.store import open_store
from batchjobs.verify import verify_output
from schemas.job import JobSpec
from tests.conftest import run_here, text_table


def s3_job(options: dict[str, Any], *tables: pa.Table, **echo: Any) -> JobSpec:
    fs = fsspec.filesystem("s3", **options)
    for number, table in enumerate(tables):
        with fs.open(f"lake/data/dt=2026-11-28/{number:02d}.parquet", "wb") as stream:
            pq.write_table(table, stream, row_group_size=3)
    return parse_job({
        "name": "s3", "input": {"path": "s3://lake/data", "storage_options": options}, "prompt": {"column": "text"},
        "sampling": {"max_tokens": 50}, "engine": {"kind": "echo", "max_num_seqs": 2, "echo": echo},
        "output": {"path": "s3://lake/out", "storage_options": options}, "run": {"shard_rows": 4, "max_restarts": 0},
    })  # fmt: skip


def test_a_job_reads_and_writes_s3_fails_and_goes_on(s3: dict[str, Any]) -> None:
    tables = (text_table(7), text_table(6, first=7))
    failed = run_here(s3_job(s3, *tables, raise_rows=[9]))
    assert failed.state == "failed"
    job = s3_job(s3, *tables)
    summary = run_here(job)
    assert (summary.state, summary.rows.total) == ("completed", 13)
    assert summary.rows.reused >= failed.rows.total > 0
    fs = fsspec.filesystem("s3", **s3)
    outputs = [pq.read_table(fs.open(path)) for path in sorted(fs.glob("lake/out/part-*.parquet"))]
    assert pa.concat_tables(outputs)["output"].to_pylist() == [f"text {n}" for n in range(13)]
    assert run_here(job) == summary
    assert verify_output("s3://lake/out").complete
    assert fs.exists("lake/out/_SUCCESS")
    assert fs.exists("lake/out/_batchjobs/logs/0001.log")


def test_create_if_absent_holds_on_s3(s3: dict[str, Any]) -> None:
    store = open_store("s3://lake/x", s3)
    assert store.publish("a", b"first")
    assert not store.publish("a", b"second")
    assert store.read("a") == b"first"
    assert store.publish("a", b"third", replace=True)
    assert store.read("a") == b"third"
