"""What earlier runs measured of a model on a device: how many tokens its KV cache held, and tokens per second.

One file per model, device, engine version and memory settings, in the state store; and one for all sizes of memory,
with what the engines' reports say of other sizes (`learnt`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from batchjobs.accounts.accounting import rate
from batchjobs.accounts.figures import RunFigures
from batchjobs.settings.capacity import Learnt, kv_capacity, learn
from batchjobs.settings.device import find_device
from batchjobs.settings.in_force import Settings, with_settings
from batchjobs.settings.model_config import kv_bytes_per_token, kv_heads, load_config
from batchjobs.settings.profiles import default_state, profile_key
from batchjobs.settings.weights import weights_of
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from schemas.plan import Plan

logger = logging.getLogger("batchjobs")

_ENOUGH_S = 5.0  # of generating; a shorter run says nothing of its speed
_KEPT = 10  # runs
# Settings of which only the size of the KV cache depends; others change what a token or a model takes.
_SIZES = ("gpu_memory_utilization", "kv_cache_memory_bytes", "space")


class MeasuredRun(BaseModel):
    """One run that was long enough to tell."""

    job: str
    ended: datetime
    prompt_tokens: int
    output_tokens: int
    engine_seconds: float  # of generating, summed over replicas
    ready_s: float | None = None  # from the start of a replica's process to a ready engine
    enforce_eager: bool = False

    @property
    def tokens_per_s(self) -> float:
        """Prompt and output tokens of one engine."""
        return (self.prompt_tokens + self.output_tokens) / self.engine_seconds


class Measured(BaseModel):
    """Of the latest run that knew it."""

    kv_cache_tokens: int | None = None  # of one engine, as it reported
    kv_cache_tokens_foreseen: int | None = None  # the same, as it was foreseen without having seen this very setting
    total_tokens_per_s: float | None = None  # of one engine: prompt and output tokens, while generating
    enforce_eager: bool = False  # when that speed was measured
    runs: list[MeasuredRun] = []  # the last ones, the latest at the end
    updated: datetime


def read_measured(job: JobSpec, plan: Plan) -> Measured | None:
    """What is known for the model, device, engine version and memory settings of `job`."""
    return _read(job, _name(job, plan), Measured)


def read_learnt(job: JobSpec, plan: Plan) -> Learnt:
    """What is known for the model, device and engine version of `job` with any size of memory."""
    return Learnt(**(_read(job, _name(job, plan, _SIZES), _LearntRecord) or _LearntRecord()).model_dump())


class _LearntRecord(BaseModel):
    reserve_bytes: int | None = None
    bytes_per_token: float | None = None


_Record = TypeVar("_Record", bound=BaseModel)


def _read(job: JobSpec, name: str, kind: type[_Record]) -> _Record | None:
    store = open_store(job.run.state or default_state())
    try:
        data = store.read(name)
        return kind.model_validate_json(data) if data else None
    except (OSError, ValueError):
        logger.warning("What was measured, %s/%s, cannot be read and is left aside.", store.url, name)
        return None


def remember_measured(job: JobSpec, plan: Plan, figures: RunFigures, settings: Settings) -> None:
    """A run has ended, whose latest engine had these settings over the job's own."""
    if job.engine.kind != "vllm" or not figures.engine:
        return
    in_force = with_settings(job, settings)
    store = open_store(job.run.state or default_state())
    try:
        found = _renewed(read_measured(in_force, plan), figures, in_force)
        if found.kv_cache_tokens:
            found.kv_cache_tokens_foreseen, learnt = _compared(in_force, plan, found.kv_cache_tokens)
            record = _LearntRecord(**asdict(learnt)).model_dump_json(indent=1).encode()
            store.publish(_name(in_force, plan, _SIZES), record, replace=True)
        store.publish(_name(in_force, plan), found.model_dump_json(indent=1).encode(), replace=True)
    except OSError as problem:
        logger.warning("What was measured is not remembered: %s.", problem)


def _compared(job: JobSpec, plan: Plan, reported: int) -> tuple[int | None, Learnt]:
    """What had been foreseen of the KV cache, and what the report teaches."""
    device, config, earlier = find_device(job), load_config(job), read_learnt(job, plan)
    found, kv = weights_of(job, config), kv_bytes_per_token(config, job)
    weights = found.of_one_device(job.engine.tensor_parallel_size, kv_heads(config)) if found is not None else None
    foreseen = kv_capacity(job, device, kv, weights, learnt=earlier).tokens
    return foreseen, learn(job, device, kv, weights, reported, earlier)


def _renewed(earlier: Measured | None, figures: RunFigures, job: JobSpec) -> Measured:
    seconds = figures.generating_s * max(1, len({attempt.replica for attempt in figures.attempts}))
    found, now, tokens = earlier or Measured(updated=datetime.now(UTC)), datetime.now(UTC), figures.tokens()
    told: dict[str, Any] = {"kv_cache_tokens": figures.engine.get("kv_cache_tokens"), "updated": now}
    speed = rate(figures, seconds).total_tokens_per_s if seconds >= _ENOUGH_S else None
    if speed:
        ready = [attempt.ready_s for attempt in figures.attempts if attempt.ready_s is not None]
        run = MeasuredRun(
            job=job.name,
            ended=now,
            prompt_tokens=tokens["prompt"],
            output_tokens=tokens["output"],
            engine_seconds=seconds,
            ready_s=sum(ready) / len(ready) if ready else None,
            enforce_eager=bool(job.engine.enforce_eager),
        )
        told |= {"total_tokens_per_s": speed, "enforce_eager": run.enforce_eager}
        told["runs"] = [*found.runs, run][-_KEPT:]
    return found.model_copy(update=told)


def _name(job: JobSpec, plan: Plan, but: Sequence[str] = ()) -> str:
    """What the size of the KV cache depends on is in the name, so that jobs with other settings do not meet."""
    assert job.model is not None
    engine = {"gpu_memory_utilization", "kv_cache_memory_bytes", "tensor_parallel_size", "extra"}
    memory = {
        **job.engine.model_dump(mode="json", include=engine),
        **job.model.model_dump(mode="json", include={"dtype", "quantization", "kv_cache_dtype"}),
        "space": {**os.environ, **job.engine.env}.get("VLLM_CPU_KVCACHE_SPACE"),
    }
    kept = {name: value for name, value in memory.items() if name not in but}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]
    return f"rates/{profile_key(job, plan)}-{digest}{'-any' if but else ''}.json"
