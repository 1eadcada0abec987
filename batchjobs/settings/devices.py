"""Which devices of this machine each replica gets: GPUs by number, or cores."""

from __future__ import annotations

import itertools
import os
import subprocess
from dataclasses import dataclass, field

from batchjobs.errors import SpecError
from batchjobs.settings.in_force import Settings
from schemas.job import JobSpec

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_CPU_UTILIZATION = 0.92  # vLLM's default share of memory, which on a CPU is the machine's


@dataclass(frozen=True)
class Placement:
    """Where one replica runs: environment variables, cores (empty: any), and settings that follow from sharing."""

    environment: dict[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    settings: Settings = field(default_factory=dict)


def placements(job: JobSpec) -> list[Placement]:
    """One for each replica; raises SpecError if the machine has too few GPUs. `auto`: one per group of GPUs, else 1."""
    gpus = visible_gpus() if job.engine.kind == "vllm" else []
    group = _gpus_of_a_replica(job)
    if not gpus:
        return _on_cores(job, 1 if job.engine.replicas == "auto" else job.engine.replicas)
    replicas = max(1, len(gpus) // group) if job.engine.replicas == "auto" else job.engine.replicas
    if replicas * group > len(gpus):
        raise SpecError(
            f"engine.replicas: found {replicas} with {group} GPUs each; allowed: at most {len(gpus) // group} on this "
            f"machine, whose GPUs are {', '.join(gpus)}"
        )
    if replicas == 1:  # nothing to share, so what the user has set up stays
        return [Placement()]
    return [Placement({_VISIBLE: ",".join(gpus[n * group : (n + 1) * group])}) for n in range(replicas)]


def _gpus_of_a_replica(job: JobSpec) -> int:
    pipeline = job.engine.extra.get("pipeline_parallel_size", 1)
    return job.engine.tensor_parallel_size * (pipeline if isinstance(pipeline, int) else 1)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; empty without NVIDIA's driver."""
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=True,
        ).stdout.split()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    allowed = os.environ.get(_VISIBLE)
    return found if allowed is None else [name.strip() for name in allowed.split(",") if name.strip()]


def _on_cores(job: JobSpec, replicas: int) -> list[Placement]:
    cores = sorted(os.sched_getaffinity(0))
    if replicas == 1 or len(cores) < replicas:
        return [Placement() for _ in range(replicas)]
    settings: Settings = {}
    if job.engine.kind == "vllm" and job.engine.kv_cache_memory_bytes is None:
        share = (job.engine.gpu_memory_utilization or _CPU_UTILIZATION) / replicas
        settings = {"gpu_memory_utilization": round(share, 3)}
    bounds = [number * len(cores) // replicas for number in range(replicas + 1)]
    return [Placement({}, tuple(cores[a:b]), settings) for a, b in itertools.pairwise(bounds)]
