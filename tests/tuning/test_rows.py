"""The sample that settings are tried on."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import InputError
from batchjobs.planning.plan import make_plan, read_dataset
from batchjobs.tuning.rows import on_sample, write_sample
from schemas.job import JobSpec
from tests.conftest import MakeJob, read_output, run_here, text_table


def sampled(job: JobSpec, rows: int, file: Path) -> pa.Table:
    dataset = read_dataset(job)
    assert write_sample(job, make_plan(job, job, dataset), dataset, rows, file) == pq.read_metadata(file).num_rows
    return pq.read_table(file)


def numbers(table: pa.Table) -> list[int]:
    return [int(name.removeprefix("id-")) for name in table["id"].to_pylist()]


def test_rows_come_in_runs_of_neighbours_from_the_whole_dataset(make_job: MakeJob, tmp_path: Path) -> None:
    found = numbers(sampled(make_job(text_table(10_000)), 100, tmp_path / "s.parquet"))
    assert len(found) == 100
    assert found[0] == 0
    assert found[-1] > 8_000
    neighbours = sum(later - earlier == 1 for earlier, later in itertools.pairwise(found))
    assert neighbours > 60
    assert numbers(sampled(make_job(text_table(50)), 100, tmp_path / "all.parquet")) == list(range(50))


def test_a_sample_has_the_columns_and_types_of_the_dataset(make_job: MakeJob, tmp_path: Path) -> None:
    table = pa.table({
        "text": pa.array(["a", None, "c"], pa.large_string()),
        "when": pa.array([1, 2, None], pa.timestamp("ms", "UTC")),
        "params": pa.array([{"temperature": 0.5}, None, None], pa.struct([("temperature", pa.float32())])),
    })  # fmt: skip
    found = sampled(make_job(table), 10, tmp_path / "s.parquet")
    assert found.schema.equals(table.schema)
    assert found.equals(table)


def test_hive_columns_become_columns_of_the_sample(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(prompt={"template": "{{ lang }}: {{ text }}"})
    (tmp_path / "data" / "00.parquet").unlink()
    for lang in ("de", "en"):
        (tmp_path / "data" / f"lang={lang}").mkdir()
        pq.write_table(text_table(2), tmp_path / "data" / f"lang={lang}" / "a.parquet")
    found = sampled(job, 4, tmp_path / "s.parquet")
    assert found["lang"].to_pylist() == ["de", "de", "en", "en"]
    run_here(on_sample(job, tmp_path / "s.parquet"))
    assert read_output(job)["output"].to_pylist()[0] == "de: text 0"


def test_a_filter_takes_its_rows_away_before_they_are_counted(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(4000), input={"path": str(tmp_path / "data"), "filter": "id like '%7'"})
    found = numbers(sampled(job, 20, tmp_path / "s.parquet"))
    assert len(found) == 20
    assert all(number % 10 == 7 for number in found)
    assert found[-1] > 3000
    nothing = make_job(text_table(40), input={"path": str(tmp_path / "data"), "filter": "id = 'x'"})
    with pytest.raises(InputError, match="the filter removes every row"):
        sampled(nothing, 20, tmp_path / "s.parquet")
