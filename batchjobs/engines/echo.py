"""An engine without a model: the dry run for people, and the double for tests of everything that is not vLLM.

Answers are deterministic, a token is a UTF-8 byte of the answer, and it misbehaves on request (`engine.echo`).
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque

from batchjobs import __version__
from batchjobs.engines.base import (
    Completion,
    EngineInfo,
    EngineStats,
    Outcome,
    Request,
    RequestRejected,
    Working,
)
from batchjobs.engines.one_call import submit_and_step
from schemas.job import JobSpec

_DEFAULT_MAX_NUM_SEQS = 256


class EchoEngine:
    """Runs up to `max_num_seqs` requests at once, each for as many steps as it has output tokens to wait for."""

    def __init__(self, job: JobSpec) -> None:
        spec = job.engine.echo
        time.sleep(spec.start_s)
        if spec.fail_at_start is not None:
            raise RuntimeError(spec.fail_at_start)
        self._spec = spec
        slots = job.engine.max_num_seqs
        model_len = job.model.max_model_len if job.model is not None else None
        self.info = EngineInfo(
            kind="echo",
            version=__version__,
            max_model_len=model_len if isinstance(model_len, int) else spec.max_model_len,
            max_num_seqs=slots if isinstance(slots, int) else _DEFAULT_MAX_NUM_SEQS,
            vocab_size=spec.vocab_size,
            model_max_len=spec.max_model_len,
        )
        self._waiting: deque[tuple[Request, float]] = deque()
        self._clock = time.monotonic()  # when the last answer was given: speed is counted from there

    def submit(self, request: Request) -> None:
        """See Engine."""
        if request.row in self._spec.reject_rows:
            raise RequestRejected(f"echo was told to reject row {request.row}")
        if not self._waiting:
            self._clock = time.monotonic()
        self._waiting.append((request, time.monotonic()))

    def unfinished(self) -> int:
        """See Engine."""
        return len(self._waiting)

    def step(self) -> list[Completion]:
        """Finish as many of the running requests as the configured speed allows, at least one."""
        running = min(len(self._waiting), self.info.max_num_seqs)
        if self._spec.oom_above_seqs is not None and running > self._spec.oom_above_seqs:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if self._spec.tokens_per_s is None:
            return [self._finish() for _ in range(running)]
        done = [self._finish()]
        self._clock += done[0].output_tokens / self._spec.tokens_per_s
        time.sleep(max(0.0, self._clock - time.monotonic()))
        return done

    def _finish(self) -> Completion:
        request, queued = self._waiting.popleft()
        self._misbehave(request.row)
        for rows, reason in ((self._spec.error_rows, "error"), (self._spec.abort_rows, "abort")):
            if request.row in rows:
                return Completion(request.row, reason, "", 0)
        answer = self._spec.answer.replace("{prompt}", request.text or str(request.token_ids)).replace(
            "{row}", str(request.row)
        )
        room = min(request.max_tokens, self.info.max_model_len - len(request.token_ids))
        whole = answer.encode()
        text = whole[:room].decode("utf-8", "ignore") if len(whole) > room else answer
        waited = time.monotonic() - queued
        return Completion(
            row=request.row,
            finish_reason="length" if len(whole) > room else "stop",
            text=text,
            output_tokens=min(len(whole), room),
            cached_tokens=0,
            queue_s=waited,
            ttft_s=waited,
        )

    def _misbehave(self, row: int) -> None:
        if row in self._spec.raise_rows:
            raise RuntimeError(f"echo was told to raise at row {row}")
        if row in self._spec.die_rows:
            os.kill(os.getpid(), signal.SIGKILL)
        if row in self._spec.hang_rows:
            time.sleep(1e9)

    def generate(self, requests: list[Request], working: Working) -> list[Outcome]:
        """See Engine."""
        return submit_and_step(self, requests, working)

    def stats(self) -> EngineStats:
        """See Engine."""
        running = min(len(self._waiting), self.info.max_num_seqs)
        return EngineStats(running=running, waiting=len(self._waiting) - running)

    def close(self) -> None:
        """Nothing is held."""
        self._waiting.clear()
