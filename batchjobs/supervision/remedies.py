"""From a cause to the next setting, one step at a time. What is not known to help is not tried.

The ladders follow the notes of vLLM's own messages: what each says is too small or too large.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batchjobs.settings.in_force import Settings
from batchjobs.supervision.causes import NEEDED, Cause
from schemas.job import JobSpec

_LEAST_BATCHED_TOKENS = 2048
_LEAST_UTILIZATION = 0.5
_MOST_UTILIZATION = 0.95
_DEFAULT_UTILIZATION = 0.92  # of vLLM 0.32


@dataclass(frozen=True)
class Remedy:
    """What to change for the next life, and why. Without settings: the same again."""

    settings: Settings
    reason: str
    wait_s: float = 0.0


@dataclass(frozen=True)
class Situation:
    """What a ladder looks at."""

    job: JobSpec
    settings: Settings  # in force until now
    engine: dict[str, Any]  # EngineInfo of the latest life that started, or empty
    words: str  # what the engine said
    deaths: int  # of this cause so far in this run, this one included

    def now(self, name: str) -> Any:
        """The value of a setting as it was when the engine died: a number, or None where only vLLM knows it."""
        if name in self.settings:
            return self.settings[name]
        spec = getattr(self.job.engine, name, None)
        return spec if isinstance(spec, (int, float)) else self.engine.get(name)


Step = Callable[[Situation], Remedy | None]


def remedy_for(cause: Cause, situation: Situation) -> Remedy | None:
    """The next step for this cause; None when there is none left."""
    for step in _LADDERS.get(cause, ()):
        remedy = step(situation)
        if remedy is not None:
            return remedy
    return None


def _lower_utilization(s: Situation) -> Remedy | None:
    if not _sized_by_utilization(s):
        return None
    now = s.now("gpu_memory_utilization") or _DEFAULT_UTILIZATION
    # Three steps at the most: what they cannot free is not the cache's fault.
    started_at = s.job.engine.gpu_memory_utilization or _DEFAULT_UTILIZATION
    lower = round(now - 0.04, 2)
    if lower < max(_LEAST_UTILIZATION, started_at - 0.13):
        return None
    return Remedy({"gpu_memory_utilization": lower}, f"gpu_memory_utilization {now:g} -> {lower:g}")


def _raise_utilization(s: Situation) -> Remedy | None:
    now = s.now("gpu_memory_utilization") or _DEFAULT_UTILIZATION
    higher = round(min(now + 0.03, _MOST_UTILIZATION), 2)
    if not _sized_by_utilization(s) or higher <= now:
        return None
    return Remedy({"gpu_memory_utilization": higher}, f"gpu_memory_utilization {now:g} -> {higher:g}")


def _sized_by_utilization(s: Situation) -> bool:
    return s.job.engine.kind == "vllm" and s.now("kv_cache_memory_bytes") is None


def _halve(name: str, least: int) -> Step:
    def step(s: Situation) -> Remedy | None:
        now = s.now(name)
        if now is None or now <= least:
            return None
        lower = max(least, int(now) // 2)
        return Remedy({name: lower}, f"{name} {now} -> {lower}")

    return step


def _eager(s: Situation) -> Remedy | None:
    if s.job.engine.kind != "vllm" or s.now("enforce_eager"):
        return None
    return Remedy({"enforce_eager": True}, "enforce_eager: no CUDA graphs, no compilation")


def _not_async(s: Situation) -> Remedy | None:
    if s.job.engine.kind != "vllm" or "extra.async_scheduling" in s.settings:
        return None
    return Remedy({"extra.async_scheduling": False}, "async_scheduling off")


def _fit_context(s: Situation) -> Remedy | None:
    """vLLM says which max_model_len would fit; no row may need more, which is checked row by row."""
    found = re.search(r"estimated maximum model length is (\d+)", s.words)
    if found is None or int(found[1]) < 1:
        return None
    now = s.settings.get("max_model_len") or (s.job.model.max_model_len if s.job.model else None)
    if isinstance(now, int) and int(found[1]) >= now:
        return None
    return Remedy({"max_model_len": int(found[1])}, f"max_model_len {now or 'of the model'} -> {found[1]}")


def _longer_context(s: Situation) -> Remedy | None:
    """Twice what the row needs and four times what it was, so that few restarts follow; the model's own at the most."""
    found = NEEDED.search(s.words)
    if found is None:
        return None
    needed, now = int(found[1]), int(s.engine["max_model_len"])
    length = max(2 * needed, 4 * now)
    if s.engine.get("kv_cache_tokens"):  # a sequence has to fit
        length = min(length, s.engine["kv_cache_tokens"])
    length = max(needed, min(length, s.engine.get("model_max_len") or needed))
    return Remedy({"max_model_len": length}, f"max_model_len {now} -> {length}")


def _what_is_free(s: Situation) -> Remedy | None:
    """`Free memory on device cuda:0 (a/b GiB) on startup`: take what is free, less two percent."""
    found = re.search(r"\(([\d.]+)/([\d.]+) GiB\) on startup", s.words)
    share = math.floor(float(found[1]) / float(found[2]) * 100 - 2) / 100 if found else 0.0
    if share < 0.1:
        return None
    return Remedy({"gpu_memory_utilization": share}, f"the GPU is busy: gpu_memory_utilization -> {share:g}")


def _wait(times: int, seconds: float, why: str) -> Step:
    def step(s: Situation) -> Remedy | None:
        return Remedy({}, f"{why}: waiting {seconds:g} s", wait_s=seconds) if s.deaths <= times else None

    return step


def _again(times: int) -> Step:
    def step(s: Situation) -> Remedy | None:
        return Remedy({}, "the same settings once more") if s.deaths <= times else None

    return step


_FEWER_TOKENS = _halve("max_num_batched_tokens", _LEAST_BATCHED_TOKENS)
_FEWER_SEQS = _halve("max_num_seqs", 1)
_SMALLER_CACHE = _halve("kv_cache_memory_bytes", 2**26)

_LADDERS: dict[Cause, tuple[Step, ...]] = {
    Cause.ENGINE_OOM: (_lower_utilization, _FEWER_TOKENS, _FEWER_SEQS, _eager),
    Cause.NO_KV_ROOM: (_raise_utilization, _FEWER_TOKENS, _FEWER_SEQS),
    Cause.KV_TOO_SMALL: (_raise_utilization, _fit_context),
    Cause.SAMPLER_OOM: (_FEWER_SEQS,),
    Cause.GPU_BUSY: (_wait(3, 30.0, "the GPU is busy"), _what_is_free),
    Cause.HOST_OOM: (_SMALLER_CACHE, _FEWER_TOKENS, _FEWER_SEQS),
    Cause.HANG: (_again(1), _eager, _not_async),
    Cause.CONTEXT_TOO_SHORT: (_longer_context,),
    Cause.START_FAILED: (_again(2),),
    Cause.START_TIMEOUT: (_again(1),),
}
