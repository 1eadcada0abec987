"""Gathers what the settings are decided from: device, configuration, what earlier runs measured, a sample of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.engines.base import Request
from batchjobs.settings.capacity import Capacity, kv_capacity, weights_bytes
from batchjobs.settings.device import Device, find_device
from batchjobs.settings.in_force import with_settings
from batchjobs.settings.measured import read_measured
from batchjobs.settings.model_config import kv_bytes_per_token, load_config, max_len_of
from batchjobs.settings.profiles import ProfileStore
from batchjobs.settings.sample import Sample, take_sample
from batchjobs.settings.sizing import Decisions, Facts, decide
from batchjobs.settings.speed import Speed, speed_of
from schemas.job import JobSpec
from schemas.plan import Plan

_SPREAD = 2  # answers of one kind may be so many times as long as their mean: what runs must not be preempted


def is_open(job: JobSpec) -> bool:
    """Whether the job leaves anything to be decided."""
    if job.model is not None and job.model.max_model_len == "auto":
        return True
    engine = job.engine
    return engine.kind == "vllm" and (
        "auto" in (engine.max_num_seqs, engine.max_num_batched_tokens) or engine.enforce_eager is None
    )


def decisions_for(
    job: JobSpec, plan: Plan, fs: Any, paths: Sequence[str], shards: Sequence[int], rows: int, lengths: OutputLengths
) -> Decisions:
    """The open settings for these shards, of which at most `rows` rows are generated. Writes nothing.

    `job` has its references resolved; `paths` are where the plan's files are now,
    `lengths` what earlier runs have learnt of answers.
    """
    if not shards or not is_open(job):
        return {}

    def expected(request: Request) -> int:
        known = lengths.expected(len(request.token_ids), request.max_tokens)
        return min(request.max_tokens, math.ceil(_SPREAD * known))

    sample = take_sample(job, plan, fs, paths, shards, expected)
    facts = _echo_facts if job.engine.kind == "echo" else vllm_facts
    return decide(facts(job, plan, sample, rows))


def _echo_facts(job: JobSpec, plan: Plan, sample: Sample, rows: int) -> Facts:
    none = Capacity(None, "the echo engine has no KV cache")
    return Facts(job, Device("cpu"), none, job.engine.echo.max_model_len, True, Speed(1.0, True, ""), sample, rows)


def vllm_facts(job: JobSpec, plan: Plan, sample: Sample, rows: int) -> Facts:
    """What the settings of a job with the real engine are decided from, for a sample of its rows."""
    in_force = with_settings(job, ProfileStore(job, plan).start_with()[0])  # its memory settings decide
    device, config, weights = find_device(job), load_config(job), weights_bytes(job)
    measured, kv = read_measured(in_force, plan), kv_bytes_per_token(config, job)
    reported = measured.kv_cache_tokens if measured is not None else None
    return Facts(
        job=job,
        device=device,
        capacity=kv_capacity(in_force, device, kv, weights, reported),
        max_len=max_len_of(config),
        plain=kv.per_token is not None,
        speed=speed_of(job, device, weights, measured),
        sample=sample,
        rows=rows,
    )
