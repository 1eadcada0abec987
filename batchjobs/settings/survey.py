"""Gathers what the settings are decided from: device, configuration, what earlier runs measured, a sample of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.engines.base import Request
from batchjobs.settings.capacity import NOTHING, Capacity, kv_capacity
from batchjobs.settings.device import Device, find_device
from batchjobs.settings.in_force import with_settings
from batchjobs.settings.measured import read_learnt, read_measured
from batchjobs.settings.model_config import kv_bytes_per_token, load_config, max_len_of
from batchjobs.settings.profiles import ProfileStore
from batchjobs.settings.sample import Expected, Sample, take_sample
from batchjobs.settings.sizing import Facts
from batchjobs.settings.speed import Speed, speed_of
from batchjobs.settings.weights import weights_of
from schemas.job import JobSpec
from schemas.plan import Plan

_SPREAD = 2  # answers of one kind may be so many times as long as their mean: what runs must not be preempted


def survey(
    job: JobSpec,
    plan: Plan,
    fs: Any,
    paths: Sequence[str],
    shards: Sequence[int],
    rows: int,
    lengths: OutputLengths,
) -> Facts:
    """What is known of the job before its engines start, for these shards, of which `rows` rows are left at the most.

    `job` has its references resolved; `paths` are where the plan's files are now, `lengths` what earlier runs have
    learnt of answers. Writes nothing.
    """
    sample = take_sample(job, plan, fs, paths, shards, generous(lengths))
    return facts_of(job, plan, sample, rows)


def generous(lengths: OutputLengths) -> Expected:
    """The output tokens to leave room for: twice what earlier answers to such prompts had."""

    def expected(request: Request) -> int:
        known = lengths.expected(len(request.token_ids), request.max_tokens)
        return min(request.max_tokens, math.ceil(_SPREAD * known))

    return expected


def facts_of(job: JobSpec, plan: Plan, sample: Sample, rows: int, device: Device | None = None) -> Facts:
    """What is known of the job with such rows. With a `device` other than this machine's, no measurement counts."""
    if job.engine.kind == "echo":
        none = Capacity(None, "the echo engine has no KV cache")
        return Facts(job, Device("cpu"), none, job.engine.echo.max_model_len, True, Speed(1.0, True, ""), sample, rows)
    in_force = with_settings(job, ProfileStore(job, plan).start_with()[0])  # its memory settings decide
    config, here = load_config(job), find_device(job)
    measured = read_measured(in_force, plan) if device in (None, here) else None
    learnt = read_learnt(in_force, plan) if device in (None, here) else NOTHING
    device, weights, kv = device or here, weights_of(job, config), kv_bytes_per_token(config, job)
    facts = Facts(
        job=job,
        device=device,
        capacity=Capacity(None, ""),
        max_len=max_len_of(config),
        plain=kv.per_token is not None,
        speed=speed_of(job, device, weights, measured),
        sample=sample,
        rows=rows,
        config=config,
        kv=kv,
        weights=weights,
        measured=measured,
        learnt=learnt,
        in_force=in_force,
    )
    reported = measured.kv_cache_tokens if measured is not None else None
    return replace(facts, capacity=kv_capacity(in_force, device, kv, facts.own_weights, reported, learnt))
