"""`verify` finds whatever is wrong with an output."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import OutputError
from batchjobs.storage.checkpoint import COMMIT_KEY
from batchjobs.verify import verify_output
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, run_here, text_table


@pytest.fixture
def finished(make_job: MakeJob) -> JobSpec:
    job = make_job(text_table(10), input={"id_column": "id"})
    run_here(job)
    return job


def test_a_finished_job_is_complete(finished: JobSpec) -> None:
    proof = verify_output(finished.output.path)
    assert (proof.complete, proof.shards, proof.rows, proof.ok, proof.ids_checked) == (True, 3, 10, 10, True)
    result = batchjobs("verify", finished.output.path)
    assert result.returncode == 0
    assert "complete" in result.stdout


def rewrite(part: Path, change: Callable[[pa.Table], pa.Table], keep_commit: bool = True) -> None:
    table = pq.read_table(part)
    commit = pq.read_metadata(part).metadata[COMMIT_KEY]
    changed = change(table)
    with pq.ParquetWriter(part, changed.schema) as writer:
        writer.write_table(changed)
        if keep_commit:
            writer.add_key_value_metadata({COMMIT_KEY.decode(): commit.decode()})


def set_rows(table: pa.Table, rows: list[int]) -> pa.Table:
    index = table.schema.get_field_index("row")
    return table.set_column(index, table.schema.field("row"), pa.array(rows, pa.int64()))


def damage(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[40] ^= 0xFF
    part.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda part: part.unlink(), "shard 1 has no part"),
        (lambda part: part.write_bytes(b""), "part-000001.parquet cannot be read"),
        (damage, "part-000001.parquet"),
        (lambda part: rewrite(part, lambda t: t.slice(1)), "it has 3 rows; committed 4"),
        (lambda part: rewrite(part, lambda t: set_rows(t, [4, 5, 5, 7])), "its row numbers do not rise"),
        (lambda part: rewrite(part, lambda t: set_rows(t, [5, 6, 7, 8])), r"its row numbers 5–8 are not within 4–7"),
        (lambda part: rewrite(part, lambda t: t.drop_columns(["error"])), "its schema is not the plan's"),
        (lambda part: rewrite(part, lambda t: t, keep_commit=False), "has no readable commit record"),
        (lambda part: shutil.copy(part.with_name("part-000000.parquet"), part), "it is the part of shard 0"),
        (lambda part: shutil.copy(part, part.with_name("part-000007.parquet")), "part-000007.parquet is no shard"),
        (lambda part: shutil.copy(part, part.with_name("zzz.parquet")), "zzz.parquet is no part"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(finished: JobSpec, harm: Callable[[Path], object], message: str) -> None:
    harm(Path(finished.output.path) / "part-000001.parquet")
    proof = verify_output(finished.output.path)
    assert not proof.complete
    assert message in "\n".join(proof.discrepancies)
    assert batchjobs("verify", finished.output.path).returncode == 1


def test_a_part_of_another_job_is_found(finished: JobSpec, make_job: MakeJob, tmp_path: Path) -> None:
    other = make_job(output={"path": str(tmp_path / "other")}, sampling={"max_tokens": 9})
    run_here(other)
    shutil.copy(f"{other.output.path}/part-000001.parquet", f"{finished.output.path}/part-000001.parquet")
    assert "it belongs to another job" in "\n".join(verify_output(finished.output.path).discrepancies)


def test_ids_that_repeat_are_named_with_their_rows(make_job: MakeJob) -> None:
    table = pa.table({"id": [7, 1, 2, 3, 4, 7], "text": list("abcdef")})
    job = make_job(table, input={"id_column": "id"})
    run_here(job)
    proof = verify_output(job.output.path)
    assert proof.discrepancies == ["id 7 of row 5 is also the id of row 0"]


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="not an output of batchjobs"):
        verify_output(str(tmp_path))
    assert batchjobs("verify", tmp_path).returncode == 2
