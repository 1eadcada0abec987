"""What earlier runs measured of a model on a device: how many tokens its KV cache held, and tokens per second.

One file per model, device, engine version and memory settings, in the state store.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from datetime import UTC, datetime

from pydantic import BaseModel

from batchjobs.accounts.accounting import rate
from batchjobs.accounts.figures import RunFigures
from batchjobs.settings.in_force import Settings, with_settings
from batchjobs.settings.profiles import default_state, profile_key
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from schemas.plan import Plan

logger = logging.getLogger("batchjobs")

_ENOUGH_S = 5.0  # of generating; a shorter run says nothing of its speed


class Measured(BaseModel):
    """Of the latest run that knew it."""

    kv_cache_tokens: int | None = None  # of one engine
    total_tokens_per_s: float | None = None  # of one engine: prompt and output tokens, while generating
    enforce_eager: bool = False  # when that speed was measured
    updated: datetime


def read_measured(job: JobSpec, plan: Plan) -> Measured | None:
    """What is known for the model, device, engine version and memory settings of `job`."""
    store, name = open_store(job.run.state or default_state()), _name(job, plan)
    try:
        data = store.read(name)
        return Measured.model_validate_json(data) if data else None
    except (OSError, ValueError):
        logger.warning("What was measured, %s/%s, cannot be read and is left aside.", store.url, name)
        return None


def remember_measured(job: JobSpec, plan: Plan, figures: RunFigures, settings: Settings) -> None:
    """A run has ended, whose latest engine had these settings over the job's own."""
    if job.engine.kind != "vllm" or not figures.engine:
        return
    in_force = with_settings(job, settings)
    store, name = open_store(job.run.state or default_state()), _name(in_force, plan)
    try:
        found = _renewed(read_measured(in_force, plan), figures, bool(in_force.engine.enforce_eager))
        store.publish(name, found.model_dump_json(indent=1).encode(), replace=True)
    except OSError as problem:
        logger.warning("What was measured is not remembered: %s.", problem)


def _renewed(earlier: Measured | None, figures: RunFigures, eager: bool) -> Measured:
    seconds = figures.generating_s * max(1, len({attempt.replica for attempt in figures.attempts}))
    found = earlier or Measured(updated=datetime.now(UTC))
    told = {"kv_cache_tokens": figures.engine.get("kv_cache_tokens"), "updated": datetime.now(UTC)}
    speed = rate(figures, seconds).total_tokens_per_s if seconds >= _ENOUGH_S else None
    return found.model_copy(update=told | ({"total_tokens_per_s": speed, "enforce_eager": eager} if speed else {}))


def _name(job: JobSpec, plan: Plan) -> str:
    """What the size of the KV cache depends on is in the name, so that jobs with other settings do not meet."""
    assert job.model is not None
    engine = {"gpu_memory_utilization", "kv_cache_memory_bytes", "tensor_parallel_size", "extra"}
    memory = {
        **job.engine.model_dump(mode="json", include=engine),
        **job.model.model_dump(mode="json", include={"dtype", "quantization", "kv_cache_dtype"}),
        "space": {**os.environ, **job.engine.env}.get("VLLM_CPU_KVCACHE_SPACE"),
    }
    digest = hashlib.sha256(json.dumps(memory, sort_keys=True).encode()).hexdigest()[:8]
    return f"rates/{profile_key(job, plan)}-{digest}.json"
