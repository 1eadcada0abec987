"""Which devices of this machine each replica gets: GPUs, or cores."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from dataclasses import dataclass, field

from batchjobs.errors import SpecError
from batchjobs.settings.device import built_for_cpu
from batchjobs.settings.in_force import Settings
from schemas.job import JobSpec

_VISIBLE = "CUDA_VISIBLE_DEVICES"
# CUDA numbers GPUs by speed unless it is told otherwise; nvidia-smi, vLLM and people number them by place.
_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
_NAMED = "BATCHJOBS_DEVICES"
_CPU_UTILIZATION = 0.92  # vLLM's default share of memory, which on a CPU is the machine's
_GPU = re.compile(r"GPU (\d+): .*\(UUID: ([\w.-]+)\)")
_MIG = re.compile(r"\s+MIG .*\(UUID: ([\w./-]+)\)")


@dataclass(frozen=True)
class OneDevice:
    """What one job at a time may use."""

    name: str  # of a GPU, as CUDA_VISIBLE_DEVICES has it
    key: str  # the same for everybody on this machine: the UUID of a GPU

    @property
    def text(self) -> str:
        """For people."""
        return f"GPU {self.name}" if self.name.isdigit() else self.name


@dataclass(frozen=True)
class Placement:
    """Where one replica runs: environment variables, cores (empty: any), and settings that follow from sharing."""

    environment: dict[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    settings: Settings = field(default_factory=dict)
    gpus: tuple[OneDevice, ...] = ()


def placements(job: JobSpec) -> list[Placement]:
    """One for each replica; raises SpecError if the machine has too few GPUs. `auto`: one per group of GPUs, else 1."""
    gpus, group = visible_gpus(job), _gpus_of_a_replica(job)
    if not gpus:
        return _on_cores(job, 1 if job.engine.replicas == "auto" else job.engine.replicas)
    replicas = max(1, len(gpus) // group) if job.engine.replicas == "auto" else job.engine.replicas
    if replicas * group > len(gpus):
        names = ", ".join(gpu.name for gpu in gpus)
        raise SpecError(
            f"engine.replicas: found {replicas} with {group} GPUs each; allowed: at most {len(gpus) // group} on this "
            f"machine, whose GPUs are {names}"
        )
    return _on_gpus(gpus, group)[:replicas]


def gpu_placements(job: JobSpec) -> list[Placement]:
    """All groups of GPUs that a replica could run on, free or not; `placements` are the first of them."""
    return _on_gpus(visible_gpus(job), _gpus_of_a_replica(job))


def _on_gpus(gpus: list[OneDevice], group: int) -> list[Placement]:
    if len(gpus) == group:  # nothing to choose, so what the user has set up stays
        return [Placement(dict(_ORDER), gpus=tuple(gpus))]
    groups = [tuple(gpus[n : n + group]) for n in range(0, len(gpus) - group + 1, group)]
    return [Placement({_VISIBLE: ",".join(gpu.name for gpu in each), **_ORDER}, gpus=each) for each in groups]


def _gpus_of_a_replica(job: JobSpec) -> int:
    pipeline = job.engine.extra.get("pipeline_parallel_size", 1)
    return job.engine.tensor_parallel_size * (pipeline if isinstance(pipeline, int) else 1)


def named_devices(job: JobSpec) -> list[OneDevice] | None:
    """What BATCHJOBS_DEVICES says that the job uses, in place of GPUs; empty: nothing; None if it is not set."""
    named = {**os.environ, **job.engine.env}.get(_NAMED)
    if named is None:
        return None
    return [OneDevice(name, name) for name in dict.fromkeys(part.strip() for part in named.split(",")) if name]


def visible_gpus(job: JobSpec) -> list[OneDevice]:
    """The GPUs that the job's engines may use, each once; empty without NVIDIA's driver, or for another engine."""
    if job.engine.kind != "vllm" or built_for_cpu(job):
        return []
    found = _listed()
    allowed = {**os.environ, **job.engine.env}.get(_VISIBLE)
    if allowed is None or not found:
        return found
    once: dict[str, OneDevice] = {}
    for name in filter(None, map(str.strip, allowed.split(","))):
        gpu = _named(name, found)
        once.setdefault(gpu.key, gpu)
    return list(once.values())


def _named(name: str, found: list[OneDevice]) -> OneDevice:
    """The GPU of that number or UUID, or beginning of one; what nvidia-smi does not show goes by its own name."""
    keys = [gpu.key for gpu in found if gpu.name == name or (name.startswith("GPU-") and gpu.key.startswith(name))]
    return OneDevice(name, keys[0] if keys else name)


def _listed() -> list[OneDevice]:
    """The GPUs by number. Of one that is divided (MIG), CUDA uses the first part if it is not told which."""
    try:
        lines = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        ).stdout.splitlines()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[OneDevice] = []
    divided: set[str] = set()
    for line in lines:
        if (gpu := _GPU.match(line)) is not None:
            found.append(OneDevice(gpu[1], gpu[2]))
        elif (part := _MIG.match(line)) is not None and found and found[-1].name not in divided:
            divided.add(found[-1].name)
            found[-1] = OneDevice(found[-1].name, part[1])
    return found


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
