"""What killed a replica, from what it left behind: its words, the end of its log, the kernel's counter.

The texts are those of vLLM 0.32 and PyTorch; in a running engine all causes raise the same EngineDeadError.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from batchjobs.accounts.figures import AttemptFigures


class Cause(StrEnum):
    """Why an attempt ended."""

    DONE = "done"
    STOPPED = "stopped"
    LOST = "lost"  # its whole run was killed
    FAILED = "failed"  # not the engine: storage, input, a bug
    START_FAILED = "start_failed"
    START_TIMEOUT = "start_timeout"
    GPU_BUSY = "gpu_busy"
    NO_KV_ROOM = "no_kv_room"
    KV_TOO_SMALL = "kv_too_small"
    SAMPLER_OOM = "sampler_oom"
    ENGINE_OOM = "engine_oom"
    HOST_OOM = "host_oom"
    CONTEXT_TOO_SHORT = "context_too_short"  # max_model_len: auto had not foreseen a row
    DEVICE_ASSERT = "device_assert"
    HANG = "hang"
    ENGINE_DIED = "engine_died"


# What `errors.ContextTooShort` says.
NEEDED = re.compile(r"may need (\d+) tokens of context, more than the \d+ that max_model_len: auto")

# The first that is found decides: the more particular come first.
_WORDS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (Cause.CONTEXT_TOO_SHORT, NEEDED),
    (Cause.SAMPLER_OOM, re.compile(r"out of memory occurred when warming up sampler")),
    (Cause.GPU_BUSY, re.compile(r"Free memory on device .* on startup is less than desired")),
    (Cause.KV_TOO_SMALL, re.compile(r"larger than the available KV cache memory")),
    (Cause.NO_KV_ROOM, re.compile(r"No available memory for the cache blocks")),
    (Cause.DEVICE_ASSERT, re.compile(r"device-side assert|illegal memory access", re.IGNORECASE)),
    (Cause.HOST_OOM, re.compile(
        r"DefaultCPUAllocator: (can't|not enough)|Cannot allocate memory|\bMemoryError\b|std::bad_alloc|unable to mmap|"
        r"Available memory on node .* is less"
    )),
    (Cause.ENGINE_OOM, re.compile(r"CUDA out of memory|OutOfMemoryError|HIP out of memory")),
)  # fmt: skip

MEMORY = frozenset({
    Cause.SAMPLER_OOM, Cause.GPU_BUSY, Cause.KV_TOO_SMALL, Cause.NO_KV_ROOM, Cause.HOST_OOM, Cause.ENGINE_OOM,
})  # fmt: skip


def cause_of(figures: AttemptFigures, log_tail: list[str]) -> Cause:
    """Why this attempt ended."""
    if figures.failure is None:
        return Cause.STOPPED if figures.stopped else Cause.DONE
    if not figures.engine_failed:
        return Cause.FAILED
    said = "\n".join([figures.failure, *log_tail])
    for cause, words in _WORDS:
        if words.search(said):
            return cause
    if figures.oom_kills:
        return Cause.HOST_OOM
    if figures.failure.startswith("the engine was not ready"):
        return Cause.START_TIMEOUT
    if figures.failure.startswith("the engine hangs"):
        return Cause.HANG
    return Cause.START_FAILED if figures.ready_s is None else Cause.ENGINE_DIED


def kernel_oom_kills() -> int:
    """Processes that the Linux kernel has killed for memory so far, on this machine or in this control group."""
    counts = [0]
    for file, word in (("/proc/vmstat", "oom_kill"), ("/sys/fs/cgroup/memory.events", "oom_kill")):
        try:
            lines = Path(file).read_text().splitlines()
        except OSError:
            continue
        counts += [int(value) for name, value in (line.split() for line in lines) if name == word]
    return max(counts)
