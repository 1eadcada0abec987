"""The job that a trial runs, and what its summary says of the setting."""

from __future__ import annotations

from batchjobs.spec import parse_job
from batchjobs.tuning.trial import in_folder, job_of, median_of
from schemas.job import JobSpec
from schemas.tuning import Setting, Trial, Variant


def job() -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x", "id_column": "id"}, "prompt": {"column": "c"},
        "sampling": {"max_tokens": 5}, "model": {"name": "m", "revision": "r", "quantization": "fp8"},
        "engine": {"replicas": 4}, "output": {"path": "y", "keep_columns": ["id"]},
        "run": {"order": "longest_first", "deduplicate": "never", "deadline": "06:30", "state": "s3://b/state"},
    })  # fmt: skip


def test_a_trial_runs_alone_remembers_nothing_and_takes_the_end_of_its_engine_for_an_answer() -> None:
    trial = in_folder(job(), "/tmp/x")
    assert (trial.output.path, trial.output.keep_columns, trial.run.state) == ("/tmp/x/out", [], "/tmp/x/state")
    assert (trial.run.max_restarts, trial.run.deadline, trial.engine.replicas) == (0, None, 1)
    assert (trial.run.order, trial.run.deduplicate) == ("longest_first", "never")


def test_another_checkpoint_brings_its_own_quantisation_and_revision() -> None:
    other = job_of(job(), Variant(model="m-awq", kv_cache_dtype="fp8")).model
    assert other is not None
    assert (other.name, other.revision, other.quantization, other.kv_cache_dtype) == ("m-awq", None, None, "fp8")
    same = job_of(job(), Variant(kv_cache_dtype="fp8")).model
    assert same is not None
    assert (same.name, same.revision, same.quantization, same.kv_cache_dtype) == ("m", "r", "fp8", "fp8")


def test_of_several_runs_the_one_with_the_median_speed_stands_for_all() -> None:
    def one(speed: float) -> Trial:
        return Trial(setting=Setting(max_num_seqs=8), outcome="measured", runs=1, total_tokens_per_s=speed)

    found = median_of([one(300), one(100), one(200)])
    assert (found.total_tokens_per_s, found.runs, found.total_tokens_per_s_range) == (200, 3, (100, 300))
    assert median_of([one(300)]).total_tokens_per_s_range is None
