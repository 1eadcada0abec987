"""What the replica needs of an engine. `vllm.py` is the real one, `echo.py` answers without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class Request:
    """One row, rendered and tokenised, ready to be fed."""

    row: int  # 0-based position in the dataset: the key of everything
    token_ids: list[int]  # plain Python integers
    max_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)  # effective SamplingParams by name, without max_tokens
    request_hash: str = ""
    text: str | None = None  # the rendered prompt, kept only for engines that echo and for people


@dataclass(slots=True)
class Completion:
    """How one request ended. Times are seconds; unknown is None, never 0."""

    row: int
    finish_reason: str | None
    text: str | None
    output_tokens: int
    reasoning: str | None = None
    cached_tokens: int | None = None
    queue_s: float | None = None  # scheduled - queued
    ttft_s: float | None = None  # first token - queued
    tpot_s: float | None = None  # (last - first token) / (n - 1)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine is and holds, known once it has started."""

    kind: str
    version: str
    max_model_len: int  # tokens
    max_num_seqs: int
    vocab_size: int
    max_num_batched_tokens: int | None = None
    kv_cache_tokens: int | None = None
    model_max_len: int | None = None  # tokens; what max_model_len may be at the most


@dataclass(slots=True)
class EngineStats:
    """Live figures of an engine. `None` is "not known to this engine"."""

    running: int = 0
    waiting: int = 0
    kv_cache_usage: float | None = None  # 0..1, now
    kv_cache_usage_peak: float | None = None  # 0..1
    prefix_cache_queries: int | None = None  # tokens
    prefix_cache_hits: int | None = None  # tokens
    preemptions: int | None = None
    recomputed_tokens: int | None = None  # tokens computed again after a preemption


class RequestRejected(Exception):
    """The engine refused this one request; it is unharmed and holds nothing of the request."""


Outcome = Completion | RequestRejected  # what became of one request
Working = Callable[[int], None]  # told after every step how many requests it was for


class Engine(Protocol):
    """One engine, driven from one thread. An exception other than RequestRejected means that the engine is dead."""

    info: EngineInfo

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestRejected."""

    def unfinished(self) -> int:
        """Requests submitted and not yet returned by `step`."""

    def step(self) -> list[Completion]:
        """Work until something may have finished. May block; call only with something unfinished."""

    def generate(self, requests: list[Request], working: Working) -> list[Outcome]:
        """Run the requests in one call, with nothing else in the engine; the outcome of each, in their order.

        A BaseException that `working` raises ends the call; the engine may only be closed then.
        """

    def stats(self) -> EngineStats:
        """Figures as of the last step."""

    def close(self) -> None:
        """Free the devices. Whatever is unfinished is dropped."""
