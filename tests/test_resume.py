"""A job that goes on: what is done is kept, and what is damaged is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.errors import OutputError
from batchjobs.job import finish, prepare, run
from batchjobs.supervision.progress import Progress, Silent
from schemas.job import JobSpec
from tests.conftest import MakeJob, read_output, run_here, snapshot, text_table


def parts(job: JobSpec) -> list[Path]:
    return sorted(Path(job.output.path).glob("part-*"))


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


def test_settings_that_cannot_change_a_result_may_differ(make_job: MakeJob) -> None:
    run_here(make_job())
    other = make_job(
        name="other", engine={"max_num_seqs": 7}, run={"order": "input", "shard_rows": 4}, cost={"usd_per_hour": 1}
    )
    assert run_here(other).state == "completed"


def test_a_replica_that_is_killed_fails_the_job_and_loses_no_committed_shard(make_job: MakeJob) -> None:
    run = {"shard_rows": 2, "max_restarts": 0}
    job = make_job(text_table(16), engine={"echo": {"die_rows": [12], "tokens_per_s": 100}}, run=run)
    summary = run_here(job)
    assert summary.state == "failed"
    assert "SIGKILL" in summary.message
    assert summary.shards.committed > 0
    assert run_here(make_job(text_table(16), run={"shard_rows": 2})).rows.total == 16


def test_another_version_goes_on_with_a_warning(make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    job = make_job(engine={"echo": {"raise_rows": [5]}}, run={"max_restarts": 0})
    run_here(job)
    plan = Path(job.output.path) / "_batchjobs/plan.json"
    plan.write_text(plan.read_text().replace('"batchjobs":"', '"batchjobs":"9.'))
    assert run_here(make_job()).state == "completed"
    assert "begun with batchjobs 9." in caplog.text


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
