"""A whole tune on the echo engine, as people call it and when it is interrupted."""

from __future__ import annotations

import signal
from pathlib import Path

from batchjobs.job import run_job
from batchjobs.spec import load_job
from batchjobs.supervision.progress import Progress, Silent
from batchjobs.tuning.sweep import Wanted, tune
from schemas.job import JobSpec
from schemas.summary import Summary
from schemas.tuning import Tuning
from tests.conftest import MakeJob, batchjobs, run_here, snapshot, text_table, write_spec


def here(job: JobSpec) -> Summary:
    return run_job(job, Silent())


def test_tune_measures_skips_finds_the_knee_and_writes_the_job_file(make_job: MakeJob, tmp_path: Path) -> None:
    state = tmp_path / "state"
    engine = {"max_num_seqs": 2, "echo": {"oom_above_seqs": 8}}
    job = make_job(text_table(80), engine=engine, run={"shard_rows": 40, "state": str(state)})
    file = write_spec(job, tmp_path / "job.yaml")
    values = [option for seqs in (16, 4, 32, 2) for option in ("--max-num-seqs", str(seqs))]
    done = batchjobs("tune", file, "--rows", "48", "--within", "0.5", "--json", *values)
    assert done.returncode == 0, done.stderr
    found = Tuning.model_validate_json(done.stdout)
    assert (found.rows, found.rows_of_job) == (48, 80)
    outcomes = [(trial.setting.max_num_seqs, trial.outcome) for trial in found.trials]
    assert outcomes == [(2, "measured"), (4, "measured"), (16, "failed"), (32, "skipped")]
    assert found.trials[2].out_of_memory
    assert found.trials[3].reason == "max_num_seqs 16 ran out of memory already"
    assert "[3 of at most 4 starts] max_num_seqs 16" in done.stderr
    assert found.own_knee is not None
    tuned = load_job(tmp_path / "job.tuned.yaml")
    assert tuned.engine.max_num_seqs == found.own_knee.setting.max_num_seqs
    assert not state.exists()  # nothing was learnt
    assert not Path(job.output.path).exists()


def test_the_file_that_is_written_goes_on_with_the_jobs_own_output(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(8))
    file = write_spec(job, tmp_path / "job.yaml")
    assert batchjobs("tune", file, "--max-num-seqs", "4").returncode == 0
    run_here(job)
    before = snapshot(job.output.path)
    assert batchjobs("run", "--no-prefect", tmp_path / "job.tuned.yaml").returncode == 0
    assert snapshot(job.output.path) == before


def test_a_file_in_the_way_is_found_before_anything_is_started(make_job: MakeJob, tmp_path: Path) -> None:
    file = write_spec(make_job(), tmp_path / "job.yaml")
    (tmp_path / "job.tuned.yaml").write_text("mine")
    refused = batchjobs("tune", file)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    assert (tmp_path / "job.tuned.yaml").read_text() == "mine"


def test_if_nothing_can_be_measured_the_reasons_are_told_and_nothing_is_written(
    make_job: MakeJob, tmp_path: Path
) -> None:
    file = write_spec(make_job(engine={"echo": {"fail_at_start": "boom"}}), tmp_path / "job.yaml")
    failed = batchjobs("tune", file, "--max-num-seqs", "2")
    assert failed.returncode == 1
    assert "No setting could be measured" in failed.stdout
    assert "failed: RuntimeError: boom" in failed.stdout
    assert not (tmp_path / "job.tuned.yaml").exists()


class _CtrlC(Silent):
    """A person who stops a run as soon as it generates."""

    def progress(self, now: Progress) -> None:
        if now.phase == "generating":
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_the_trial_and_leaves_what_was_measured(make_job: MakeJob) -> None:
    told: list[str] = []
    slow = make_job(text_table(16), engine={"kind": "echo", "echo": {"answer": "x" * 20, "tokens_per_s": 100}})

    def run(job: JobSpec) -> Summary:
        return run_job(job, _CtrlC() if job.engine.max_num_seqs == 4 else Silent())

    found = tune(slow, Wanted(max_num_seqs=(2, 4, 8)), run, told.append)
    assert found.stopped
    assert [trial.outcome for trial in found.trials] == ["measured", "stopped"]
    assert found.own_knee is not None
    assert not any("max_num_seqs 8 …" in line for line in told)


def test_a_setting_is_run_several_times_and_the_median_counts(make_job: MakeJob) -> None:
    found = tune(make_job(text_table(16)), Wanted(max_num_seqs=(4,), runs=3), here, lambda line: None)
    (trial,) = found.trials
    assert trial.runs == 3
    assert trial.total_tokens_per_s_range is not None
    low, high = trial.total_tokens_per_s_range
    assert low <= (trial.total_tokens_per_s or 0) <= high


def test_a_setting_that_the_sample_cannot_fill_is_not_tried(make_job: MakeJob) -> None:
    found = tune(make_job(text_table(10)), Wanted(max_num_seqs=(8, 16)), here, lambda line: None)
    assert [(t.setting.max_num_seqs, t.outcome) for t in found.trials] == [(8, "measured"), (16, "skipped")]
    assert found.trials[1].reason == "the sample has no more than 10 rows"


def test_the_bench_refuses_a_job_without_a_prefix_cache(make_job: MakeJob, tmp_path: Path) -> None:
    file = write_spec(make_job(), tmp_path / "job.yaml")
    echo = batchjobs("bench", "prefix-cache", file)
    assert echo.returncode == 2
    assert "engine.kind: found echo" in echo.stderr
    off = make_job(engine={"kind": "vllm", "enable_prefix_caching": False}, model={"name": "m"})
    refused = batchjobs("bench", "prefix-cache", write_spec(off, tmp_path / "off.yaml"))
    assert refused.returncode == 2
    assert "engine.enable_prefix_caching: found false" in refused.stderr
