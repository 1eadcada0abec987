"""A job from spec to summary, with the echo engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import InputError, OutputError, SpecError
from batchjobs.job import finish, prepare, run
from batchjobs.progress import Progress, Silent
from schemas.job import JobSpec
from schemas.records import RESULT_COLUMNS
from tests.conftest import MakeJob, read_output, run_here, text_table


def snapshot(folder: str) -> dict[str, tuple[int, int]]:
    return {str(f): (f.stat().st_mtime_ns, f.stat().st_size) for f in Path(folder).rglob("*") if f.is_file()}


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


def test_a_finished_job_changes_no_file_and_repeats_its_summary(make_job: MakeJob) -> None:
    job = make_job()
    first = run_here(job)
    before = snapshot(job.output.path)
    again = run_here(job)
    assert again == first
    assert snapshot(job.output.path) == before


def test_committed_shards_are_neither_read_nor_generated_again(make_job: MakeJob) -> None:
    job = make_job(text_table(12), engine={"echo": {"raise_rows": [9]}}, run={"max_restarts": 0})
    failed = run_here(job)
    assert (failed.state, failed.exit_code) == ("failed", 1)
    assert "told to raise" in failed.message
    kept = snapshot(job.output.path)
    repaired = make_job(text_table(12))
    summary = run_here(repaired)
    assert summary.state == "completed"
    assert summary.rows.reused >= failed.rows.total > 0
    assert summary.rows.generated == 12 - summary.rows.reused
    parts = {name for name in kept if "part-" in name}
    assert {name: kept[name] for name in parts} == {n: v for n, v in snapshot(job.output.path).items() if n in parts}
    assert read_output(job)["output"].to_pylist() == [f"text {n}" for n in range(12)]
    assert [attempt.cause for attempt in summary.attempts] == ["engine_died", "done"]


def test_a_changed_setting_is_refused_with_the_difference(make_job: MakeJob) -> None:
    run_here(make_job())
    before = snapshot(make_job().output.path)
    with pytest.raises(OutputError, match=r"sampling\.max_tokens: was 100, now 5"):
        run_here(make_job(sampling={"max_tokens": 5}))
    assert snapshot(make_job().output.path) == before


def test_settings_that_cannot_change_a_result_may_differ(make_job: MakeJob) -> None:
    run_here(make_job())
    other = make_job(
        name="other", engine={"max_num_seqs": 7}, run={"order": "input", "shard_rows": 4}, cost={"usd_per_hour": 1}
    )
    assert run_here(other).state == "completed"


def test_a_changed_input_file_is_refused(make_job: MakeJob) -> None:
    run_here(make_job(text_table(10)))
    with pytest.raises(OutputError, match="input: 00.parquet has changed"):
        run_here(make_job(text_table(11)))


def test_a_file_that_arrived_later_is_refused_and_frozen_input_finishes_what_was_planned(make_job: MakeJob) -> None:
    job = make_job(text_table(10), engine={"echo": {"raise_rows": [5]}}, run={"max_restarts": 0})
    run_here(job)
    job = make_job(text_table(10), text_table(5, first=10))
    with pytest.raises(OutputError, match=r"01\.parquet is new[\s\S]*--frozen-input"):
        run_here(job)
    assert run_here(job, frozen_input=True).rows.total == 10


def test_an_output_folder_that_is_not_ours_is_refused_and_left_alone(make_job: MakeJob) -> None:
    job = make_job()
    folder = Path(job.output.path)
    folder.mkdir()
    (folder / "precious.txt").write_text("x")
    with pytest.raises(OutputError, match=r"not empty.*precious\.txt"):
        run_here(job)
    assert [f.name for f in folder.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("where", ["data", "data/out", "."])
def test_an_output_that_is_or_contains_or_lies_inside_the_input_is_refused(
    make_job: MakeJob, tmp_path: Path, where: str
) -> None:
    with pytest.raises(OutputError, match=r"output\.path"):
        run_here(make_job(output={"path": str(tmp_path / where)}))


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


def test_missing_input_is_refused_before_anything_is_written(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(input={"path": str(tmp_path / "nowhere")})
    with pytest.raises(InputError, match="nowhere"):
        run_here(job)
    assert not Path(job.output.path).exists()


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


def test_a_clash_with_a_result_column_names_the_prefix(make_job: MakeJob) -> None:
    table = pa.table({"text": ["a"], "status": ["mine"]})
    with pytest.raises(SpecError, match=r"output\.prefix"):
        run_here(make_job(table))
    job = make_job(table, output={"prefix": "llm_"})
    run_here(job)
    assert read_output(job).select(["status", "llm_status", "llm_output"]).to_pylist() == [
        {"status": "mine", "llm_status": "ok", "llm_output": "a"}
    ]


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


def test_a_replica_that_is_killed_fails_the_job_and_loses_no_committed_shard(make_job: MakeJob) -> None:
    run = {"shard_rows": 2, "max_restarts": 0}
    job = make_job(text_table(16), engine={"echo": {"die_rows": [12], "tokens_per_s": 100}}, run=run)
    summary = run_here(job)
    assert summary.state == "failed"
    assert "SIGKILL" in summary.message
    assert summary.shards.committed > 0
    assert run_here(make_job(text_table(16), run={"shard_rows": 2})).rows.total == 16


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


def test_the_engines_seconds_add_up_to_the_time_held(make_job: MakeJob) -> None:
    seconds = run_here(make_job(engine={"echo": {"tokens_per_s": 200, "start_s": 0.3}})).engine_seconds
    labels = seconds.startup + seconds.productive + seconds.starved + seconds.tail + seconds.draining + seconds.lost
    assert labels == pytest.approx(seconds.held, abs=0.01)
    assert seconds.startup >= 0.3


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


def test_another_version_goes_on_with_a_warning(make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    job = make_job(engine={"echo": {"raise_rows": [5]}}, run={"max_restarts": 0})
    run_here(job)
    plan = Path(job.output.path) / "_batchjobs/plan.json"
    plan.write_text(plan.read_text().replace('"batchjobs":"', '"batchjobs":"9.'))
    assert run_here(make_job()).state == "completed"
    assert "begun with batchjobs 9." in caplog.text


def parts(job: JobSpec) -> list[Path]:
    return sorted(Path(job.output.path).glob("part-*"))


def test_a_part_that_is_damaged_or_a_copy_is_refused_with_what_to_do(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    parts(job)[2].unlink()
    kept = parts(job)[1].read_bytes()
    for data, what in ((b"garbage", "is damaged"), (parts(job)[0].read_bytes(), "is a copy of the part of shard 0")):
        parts(job)[1].write_bytes(data)
        with pytest.raises(OutputError, match=rf"part-000001\.parquet {what}[\s\S]*Remove it and run again"):
            run_here(job)
    parts(job)[1].write_bytes(kept)
    assert run_here(job).rows.total == 10


def test_a_part_that_the_plan_does_not_know_does_not_make_up_for_one_that_is_missing(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    parts(job)[2].rename(Path(job.output.path) / "part-000099.parquet")
    with pytest.raises(OutputError, match=r"part-000099\.parquet is not of this job"):
        run_here(job)


def test_a_part_that_is_removed_while_the_job_runs_fails_it(make_job: MakeJob) -> None:
    job = make_job(text_table(24), engine={"echo": {"tokens_per_s": 100}})
    prepared = prepare(job)

    class Remover(Silent):
        def progress(self, now: Progress) -> None:
            if now.shards_committed and now.shards_committed < now.shards_total:
                parts(job)[0].unlink()

    summary = finish(prepared, run(prepared, Remover()))
    assert summary.state == "failed"
    assert "parts were removed while the job ran" in summary.message
    assert not (Path(job.output.path) / "_SUCCESS").exists()
    assert run_here(job).state == "completed"


def test_another_hive_value_is_another_input(make_job: MakeJob, tmp_path: Path) -> None:
    make_job()
    for day in ("1", "2"):
        (tmp_path / f"hive/dt={day}").mkdir(parents=True)
        pq.write_table(text_table(2), tmp_path / f"hive/dt={day}/a.parquet")
    run_here(make_job(input={"path": str(tmp_path / "hive/dt=1")}))
    with pytest.raises(OutputError, match=r"a\.parquet has changed"):
        run_here(make_job(input={"path": str(tmp_path / "hive/dt=2")}))


@pytest.mark.parametrize("answer", ["[" * 4000, "[NaN]", "{", "nonsense"])
def test_an_answer_that_is_no_json_is_that_rows_error(make_job: MakeJob, answer: str) -> None:
    sampling = {"max_tokens": 5000, "structured_outputs": {"json": {"type": "array"}}}
    job = make_job(pa.table({"text": [answer, "[1]", f"[{'9' * 4500}]"]}), sampling=sampling, run={"max_error_rate": 1})
    assert run_here(job).errors == {"invalid_output": 1}
    assert read_output(job)["output"].to_pylist()[0] == answer


def test_a_link_does_not_hide_that_the_output_lies_inside_the_input(make_job: MakeJob, tmp_path: Path) -> None:
    make_job()
    (tmp_path / "data/inside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data/inside")
    for path in (str(tmp_path / "link"), f"file://{tmp_path}/data/inside"):
        with pytest.raises(OutputError, match="lies inside the input"):
            run_here(make_job(output={"path": path}))
    with pytest.raises(OutputError, match="lies inside the input"):
        run_here(make_job(input={"path": f"{tmp_path}/data/**/*.parquet"}, output={"path": f"{tmp_path}/data/inside"}))


def test_bookkeeping_that_is_damaged_does_not_stop_a_job(make_job: MakeJob) -> None:
    job = make_job()
    run_here(job)
    ours = Path(job.output.path) / "_batchjobs"
    (ours / "attempts/0001.json").write_text("")
    (ours / "summary.json").write_text("{")
    parts(job)[1].unlink()
    assert run_here(job).state == "completed"
    (ours / "plan.json").write_text("")
    with pytest.raises(OutputError, match=r"plan\.json is damaged"):
        run_here(job)


def test_a_resume_among_rows_that_all_fail_is_no_broken_engine(make_job: MakeJob) -> None:
    bad = list(range(150, 300))
    job = make_job(text_table(300), engine={"echo": {"error_rows": bad}}, run={"shard_rows": 150, "max_error_rate": 1})
    run_here(job)
    parts(job)[1].unlink()
    assert run_here(job).state == "completed"


def test_a_replica_that_says_nothing_has_not_done_its_work(make_job: MakeJob, tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    summary = run_here(make_job(engine={"python": str(silent)}))
    assert summary.state == "failed"


@pytest.mark.parametrize("path", ["zzz://x", "memory://x"])
def test_an_output_that_cannot_last_is_refused(make_job: MakeJob, path: str) -> None:
    with pytest.raises(OutputError, match=path.split(":")[0]):
        run_here(make_job(output={"path": path}))


def test_an_interpreter_that_is_not_there_is_refused_before_anything_is_written(make_job: MakeJob) -> None:
    job = make_job(engine={"python": "/nonexistent/python"})
    with pytest.raises(SpecError, match=r"engine\.python: found /nonexistent/python"):
        run_here(job)
    assert not Path(job.output.path).exists()
