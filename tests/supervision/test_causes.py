"""What killed a replica, from what it left behind."""

from __future__ import annotations

import pytest

from batchjobs.accounts.figures import AttemptFigures
from batchjobs.errors import ContextTooShort
from batchjobs.supervision.causes import Cause, cause_of

DEAD = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."


def died(failure: str = DEAD, ready: bool = True, **known: object) -> AttemptFigures:
    return AttemptFigures(failure=failure, engine_failed=True, ready_s=1.0 if ready else None, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", Cause.ENGINE_OOM),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
            Cause.SAMPLER_OOM,
        ),
        ("ValueError: Free memory on device cuda:0 (3/80 GiB) on startup is less than desired", Cause.GPU_BUSY),
        ("ValueError: No available memory for the cache blocks. Try increasing", Cause.NO_KV_ROOM),
        ("(2 GiB KV cache is needed, which is larger than the available KV cache memory (1 GiB).", Cause.KV_TOO_SMALL),
        ("RuntimeError: CUDA error: device-side assert triggered", Cause.DEVICE_ASSERT),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory", Cause.HOST_OOM),
        ("OSError: [Errno 12] Cannot allocate memory", Cause.HOST_OOM),
        (str(ContextTooShort(7, 400, 256)), Cause.CONTEXT_TOO_SHORT),
        ("nothing that is known", Cause.ENGINE_DIED),
    ],
)
def test_the_end_of_the_log_names_the_cause(line: str, cause: Cause) -> None:
    assert cause_of(died(), ["INFO fine", line, "Traceback"]) is cause


def test_the_kernels_counter_is_evidence_where_the_log_says_nothing() -> None:
    assert cause_of(died("the replica was killed by signal 9 (SIGKILL)", oom_kills=1), []) is Cause.HOST_OOM
    assert cause_of(died("the replica was killed by signal 9 (SIGKILL)"), []) is Cause.ENGINE_DIED


def test_an_end_before_the_engine_was_ready_is_a_failed_start() -> None:
    assert cause_of(died("ValueError: no such model", ready=False), []) is Cause.START_FAILED
    assert cause_of(died("the engine was not ready after 1800 s", ready=False), []) is Cause.START_TIMEOUT


def test_what_is_not_the_engines_fault_is_no_cause_for_another_life() -> None:
    assert cause_of(AttemptFigures(failure="disk full"), ["CUDA out of memory"]) is Cause.FAILED


def test_an_end_in_order_is_done_or_stopped() -> None:
    assert cause_of(AttemptFigures(), []) is Cause.DONE
    assert cause_of(AttemptFigures(stopped=True), []) is Cause.STOPPED
