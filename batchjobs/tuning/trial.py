"""One trial: a real run of the job on the sample with one setting, which learns nothing and leaves nothing behind."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from batchjobs.errors import BatchjobsError, DeviceBusy
from batchjobs.settings.in_force import Settings, with_settings
from batchjobs.supervision.causes import MEMORY
from schemas.job import BaselineSpec, JobSpec, OutputSpec
from schemas.summary import Summary
from schemas.tuning import Setting, Trial, Variant

Run = Callable[[JobSpec], Summary]  # `batchjobs.job.run_job` with somebody who watches

_ONCE = {
    "max_restarts": 0,  # the end of the engine is an answer
    "max_error_rate": 1.0,
    "drain_seconds": 0.0,
    "deadline": None,
    "max_cost_usd": None,
}


def job_of(job: JobSpec, variant: Variant) -> JobSpec:
    """The job with another model or KV dtype. How the job's own model is quantised says nothing of another one."""
    if variant.is_own or job.model is None:
        return job
    model = job.model
    if variant.model is not None:
        model = model.model_copy(update={"name": variant.model, "revision": None, "quantization": None})
    if variant.kv_cache_dtype is not None:
        model = model.model_copy(update={"kv_cache_dtype": variant.kv_cache_dtype})
    return job.model_copy(update={"model": model})


def settings_of(setting: Setting) -> Settings:
    """What goes over the job's own settings of the engine."""
    tokens = setting.max_num_batched_tokens
    return {"max_num_seqs": setting.max_num_seqs} | ({"max_num_batched_tokens": tokens} if tokens is not None else {})


def in_folder(job: JobSpec, folder: str) -> JobSpec:
    """The job as a run of its own, with output and state in a folder: it neither learns nor spoils what is remembered.

    One engine, because the others would do the same.
    """
    return job.model_copy(
        update={
            "name": f"{job.name}-trial",
            "input": job.input.model_copy(update={"id_column": None}),
            "engine": job.engine.model_copy(update={"replicas": 1}),
            "output": OutputSpec(path=f"{folder}/out", keep_columns=[]),
            "run": job.run.model_copy(update={**_ONCE, "state": f"{folder}/state"}),
            "baseline": BaselineSpec(),
        }
    )


def measure(job: JobSpec, setting: Setting, learnt: Settings, runs: int, run: Run) -> Trial:
    """Run the setting so many times, or until a run fails. `job` is the variant's, over the sample."""
    job = with_settings(job, {**learnt, **settings_of(setting)})
    measured: list[Trial] = []
    for _ in range(runs):
        trial = _run_once(job, setting, run)
        if trial.outcome != "measured":
            return trial
        measured.append(trial)
    return median_of(measured)


def _run_once(job: JobSpec, setting: Setting, run: Run) -> Trial:
    with tempfile.TemporaryDirectory(prefix="batchjobs-trial-", ignore_cleanup_errors=True) as folder:
        Path(folder, "state").mkdir()
        try:
            return trial_of(setting, run(in_folder(job, folder)))
        except DeviceBusy:
            raise  # that says nothing of the setting
        except BatchjobsError as problem:
            return Trial(setting=setting, outcome="failed", reason=str(problem))


def trial_of(setting: Setting, summary: Summary) -> Trial:
    """What a run has to say of a setting."""
    last = summary.attempts[-1] if summary.attempts else None
    if summary.state == "partial":
        return Trial(setting=setting, outcome="stopped", reason="stopped before its end")
    if summary.state != "completed" or summary.rate.total_tokens_per_s is None:
        cause = last.cause if last is not None else None
        return Trial(
            setting=setting,
            outcome="failed",
            reason=(last.failure if last is not None else None) or summary.message,
            out_of_memory=cause in MEMORY,
        )
    return Trial(
        setting=setting,
        outcome="measured",
        reason="; ".join([*_failed_rows(summary), *(last.notes if last is not None else [])]) or None,
        runs=1,
        max_num_batched_tokens=summary.engine.max_num_batched_tokens,
        kv_cache_tokens=summary.engine.kv_cache_tokens,
        rows_per_s=summary.rate.requests_per_s,
        output_tokens_per_s=summary.rate.output_tokens_per_s,
        total_tokens_per_s=summary.rate.total_tokens_per_s,
        ttft_p95_s=summary.latency.ttft_s.p95,
        tpot_p95_s=summary.latency.tpot_s.p95,
        kv_cache_usage_peak=summary.engine.kv_cache_usage_peak,
        preemptions=summary.engine.preemptions,
        start_s=summary.seconds.engine_start,
        generating_s=summary.seconds.generating,
    )


def _failed_rows(summary: Summary) -> list[str]:
    codes = ", ".join(f"{count:,} {code}" for code, count in summary.errors.items())
    return [f"{summary.rows.error:,} rows failed ({codes})"] if summary.rows.error else []


def median_of(trials: Sequence[Trial]) -> Trial:
    """The trial with the median speed (the lower of two), and how far the others are from it."""
    speeds = [trial.total_tokens_per_s or 0.0 for trial in trials]
    middle = trials[speeds.index(statistics.median_low(speeds))]
    spread = (min(speeds), max(speeds)) if len(trials) > 1 else None
    return middle.model_copy(update={"runs": len(trials), "total_tokens_per_s_range": spread})
