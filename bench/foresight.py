"""What `batchjobs plan` says before: how quickly on a big dataset, and whether the KV cache comes out as foreseen."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.ours import batchjobs
from bench.results import Section
from bench.running import CommandFailed
from bench.workloads import MODEL, uniform, write_job

ROWS, FILES = 10_000_000, 1_000
ROUNDS = 3
_TEXT = "lorem ipsum dolor sit amet, consectetur adipiscing elit "
_MIB = 2**20
# Bytes of KV cache and tokens of a block; a block of 128 has 2.8 MiB of the demo model, so some sizes leave a rest.
SIZES = ((128 * _MIB, 128), (256 * _MIB, 128), (257 * _MIB, 64), (333 * _MIB, 32), (512 * _MIB, 128))


def plan(section: Section, rows: int | None, rounds: int | None) -> None:
    """A sampled plan of so many rows in a thousand files, on local disk."""
    with tempfile.TemporaryDirectory() as name:
        folder, total = Path(name), rows or ROWS
        _write_files(folder / "data", total)
        job = write_job(folder, {**_job({}), "run": {"state": str(folder / "state")}})
        for number in range(rounds or ROUNDS):
            took = batchjobs("plan", "--json", job).finish()
            found = json.loads(took.stdout)
            section.add({"round": number, "rows": found["rows"], "files": found["files"], "seconds": took.wall_s,
                         "looked_at": found["problems"]["looked_at"], "largest_bytes": took.largest_bytes})  # fmt: skip


def _write_files(folder: Path, rows: int) -> None:
    """Each file one row group; each text of about 70 characters."""
    folder.mkdir()
    each = max(1, rows // FILES)
    for number in range(FILES):
        ids = pa.array(range(number * each, (number + 1) * each))
        texts = pc.binary_join_element_wise("row", ids.cast(pa.string()), _TEXT, " ")
        pq.write_table(pa.table({"id": ids, "text": texts}), folder / f"{number:04d}.parquet", row_group_size=each)


def capacity(section: Section, rows: int | None, rounds: int | None) -> None:
    """For each size, the plan's KV tokens, and those that vLLM reports at its start."""
    for size, block in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "data").mkdir()
            pq.write_table(uniform(rows or 4), folder / "data" / "rows.parquet")
            engine = {"kv_cache_memory_bytes": size, "extra": {"block_size": block}, "enforce_eager": True}
            job = write_job(folder, {**_job(engine), "run": {"state": str(folder / "state")}})
            try:
                foreseen = json.loads(batchjobs("plan", "--json", job).finish().stdout)["capacity"]
                ran = json.loads(batchjobs("run", "--no-prefect", "--json", job).finish().stdout)
            except CommandFailed as failure:
                section.fail(f"{size / _MIB:.0f} MiB in blocks of {block}: {failure}")
                continue
            section.add({"bytes": size, "block": block, "foreseen": foreseen["kv_cache_tokens"],
                         "reported": ran["engine"]["kv_cache_tokens"]})  # fmt: skip


def _job(engine: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "foresight",
        "input": {"path": "data"},
        "prompt": {"user": "{{ text }}"},
        "sampling": {"temperature": 0, "max_tokens": 8},
        "model": {"name": str(MODEL), "max_model_len": 1024},
        "engine": {"kind": "vllm", **engine},
        "output": {"path": "out"},
    }
