"""A job from spec to summary, with the echo engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.records import RESULT_COLUMNS
from tests.conftest import MakeJob, read_output, run_here, text_table


def test_every_row_gets_one_answer_in_the_order_of_the_dataset(make_job: MakeJob) -> None:
    job = make_job(text_table(7), text_table(6, first=7), run={"order": "longest_first", "shard_rows": 4})
    summary = run_here(job)
    table = read_output(job)
    assert table["row"].to_pylist() == list(range(13))
    assert table["output"].to_pylist() == [f"text {n}" for n in range(13)]
    assert set(table["status"].to_pylist()) == {"ok"}
    assert (summary.state, summary.exit_code, summary.rows.ok, summary.rows.generated) == ("completed", 0, 13, 13)
    assert (Path(job.output.path) / "_SUCCESS").exists()


@pytest.mark.parametrize("order", ["input", "longest_first", "shortest_first", "auto"])
def test_the_feeding_order_never_changes_the_output(make_job: MakeJob, order: str) -> None:
    texts = pa.table({"text": ["x" * n for n in (5, 1, 9, 3, 7, 2, 8)]})
    job = make_job(texts, run={"order": order, "shard_rows": 3})
    run_here(job)
    assert read_output(job)["output"].to_pylist() == texts["text"].to_pylist()


def test_the_folder_is_read_by_pyarrow_and_the_parts_by_polars(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    assert pq.read_table(job.output.path).num_rows == 10
    assert pl.read_parquet(f"{job.output.path}/*.parquet")["output"].to_list() == [f"text {n}" for n in range(10)]


def test_too_many_errors_make_the_job_partial(make_job: MakeJob) -> None:
    texts = pa.table({"text": ["a", None, "", "  \n", "e", "f"]})
    summary = run_here(make_job(texts, run={"max_error_rate": 0.4}))
    assert (summary.state, summary.exit_code) == ("partial", 3)
    assert summary.errors == {"empty_prompt": 2, "null_prompt": 1}
    assert "max_error_rate" in summary.message
    assert run_here(make_job(texts, run={"max_error_rate": 0.4})) == summary
    assert run_here(make_job(texts, run={"max_error_rate": 0.6})).state == "completed"


def test_parts_have_one_schema_whether_all_rows_fail_or_none(make_job: MakeJob, tmp_path: Path) -> None:
    good = make_job(pa.table({"text": ["a", "b"]}), output={"path": str(tmp_path / "good")})
    run_here(good)
    shutil.rmtree(tmp_path / "data")
    bad = make_job(pa.table({"text": pa.array([None, None], pa.string())}), output={"path": str(tmp_path / "bad")})
    run_here(bad)
    schemas = [pq.read_schema(f"{job.output.path}/part-000000.parquet").remove_metadata() for job in (good, bad)]
    assert schemas[0] == schemas[1]
    assert schemas[0].names == ["text", *RESULT_COLUMNS]


def test_rows_that_the_filter_removes_have_no_output_row_but_are_counted(make_job: MakeJob) -> None:
    job = make_job(input={"filter": "id <> 'id-3' AND id <> 'id-9'"})
    summary = run_here(job)
    assert read_output(job)["row"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert (summary.rows.total, summary.rows.filtered, summary.rows.planned) == (8, 2, 10)


def test_a_row_on_which_the_filter_itself_fails_is_that_rows_error(make_job: MakeJob) -> None:
    table = pa.table({"text": ["a", "b", "c"], "n": ["1", "x", "-3"]})
    job = make_job(table, input={"filter": "CAST(n AS INT) > 0"}, run={"max_error_rate": 1})
    summary = run_here(job)
    assert (summary.rows.ok, summary.rows.filtered, summary.errors) == (1, 1, {"bad_value": 1})


def test_a_filter_that_removes_everything_gives_empty_parts(make_job: MakeJob) -> None:
    job = make_job(input={"filter": "id = 'none'"})
    summary = run_here(job)
    assert (summary.state, summary.rows.total, summary.rows.filtered) == ("completed", 0, 10)
    assert read_output(job).num_rows == 0


def test_an_empty_dataset_completes(make_job: MakeJob) -> None:
    summary = run_here(make_job(text_table(0)))
    assert (summary.state, summary.rows.total, summary.shards.total) == ("completed", 0, 0)


def test_a_hive_column_is_kept_unless_the_output_path_carries_it(make_job: MakeJob, tmp_path: Path) -> None:
    make_job()
    for day in ("01", "02"):
        folder = tmp_path / "hive" / f"dt=2026-11-{day}"
        folder.mkdir(parents=True)
        pq.write_table(text_table(2), folder / "a.parquet")
    job = make_job(input={"path": str(tmp_path / "hive")})
    run_here(job)
    table = pq.read_table(job.output.path, partitioning=None)
    assert table["dt"].to_pylist() == ["2026-11-01"] * 2 + ["2026-11-02"] * 2
    one = make_job(
        input={"path": str(tmp_path / "hive" / "dt=2026-11-01")},
        output={"path": str(tmp_path / "res" / "dt=2026-11-01")},
    )
    run_here(one)
    assert "dt" not in pq.read_schema(f"{one.output.path}/part-000000.parquet").names
    assert set(pq.read_table(tmp_path / "res").to_pydict()["dt"]) == {"2026-11-01"}


def test_only_the_wanted_columns_are_kept(make_job: MakeJob) -> None:
    job = make_job(output={"keep_columns": ["id"]})
    run_here(job)
    assert read_output(job).column_names == ["id", *RESULT_COLUMNS]


def test_an_engine_that_does_not_start_fails_the_job_with_its_words(make_job: MakeJob) -> None:
    summary = run_here(make_job(engine={"echo": {"fail_at_start": "no room for the KV cache"}}))
    assert (summary.state, summary.exit_code) == ("failed", 1)
    assert "no room for the KV cache" in summary.message
    assert summary.attempts[0].cause == "start_failed"
    assert any("no room" in line for line in summary.attempts[0].evidence)


def test_an_engine_that_fails_every_row_is_a_broken_engine(make_job: MakeJob) -> None:
    job = make_job(text_table(300), engine={"echo": {"error_rows": list(range(300))}}, run={"shard_rows": 50})
    summary = run_here(job)
    assert summary.state == "failed"
    assert "none succeeded" in summary.message


def test_the_output_holds_references_not_secrets(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHERE", str(tmp_path / "out"))
    monkeypatch.setenv("SECRET", "hunter2")
    job = make_job(output={"path": "${WHERE}"}, engine={"env": {"TOKEN": "${SECRET}"}})
    run_here(job)
    written = b"".join(f.read_bytes() for f in (tmp_path / "out").rglob("*") if f.is_file())
    assert b"hunter2" not in written
    assert b"${SECRET}" in written


def test_the_cost_follows_from_the_seconds_held(make_job: MakeJob) -> None:
    summary = run_here(make_job(cost={"usd_per_hour": 3600.0}))
    assert summary.cost.usd_this_run == pytest.approx(summary.engine_seconds.held)
    assert summary.cost.usd_total == pytest.approx(summary.engine_seconds.held, abs=0.01)
    assert summary.cost.usd_per_1k_rows == pytest.approx(summary.cost.usd_total * 100)


def test_the_summary_file_has_the_promised_keys(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    stored = json.loads((Path(job.output.path) / "_batchjobs/summary.json").read_text())
    assert set(stored["rows"]) >= {
        "total",
        "filtered",
        "ok",
        "error",
        "generated",
        "deduplicated",
        "reused",
        "rejected",
    }
    assert set(stored["seconds"]) >= {"wall", "plan", "engine_start", "generating", "finish", "starved", "tail"}
    rows = stored["rows"]
    assert rows["total"] == rows["ok"] + rows["error"]
    assert rows["total"] == rows["generated"] + rows["deduplicated"] + rows["reused"] + rows["rejected"]


def test_no_process_and_no_temporary_file_is_left(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    assert list((Path(job.output.path) / "_batchjobs/tmp").iterdir()) == []


@pytest.mark.parametrize("answer", ["[" * 4000, "[NaN]", "{", "nonsense"])
def test_an_answer_that_is_no_json_is_that_rows_error(make_job: MakeJob, answer: str) -> None:
    sampling = {"max_tokens": 5000, "structured_outputs": {"json": {"type": "array"}}}
    job = make_job(pa.table({"text": [answer, "[1]", f"[{'9' * 4500}]"]}), sampling=sampling, run={"max_error_rate": 1})
    assert run_here(job).errors == {"invalid_output": 1}
    assert read_output(job)["output"].to_pylist()[0] == answer


def test_a_replica_that_says_nothing_has_not_done_its_work(make_job: MakeJob, tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    summary = run_here(make_job(engine={"python": str(silent)}))
    assert summary.state == "failed"
