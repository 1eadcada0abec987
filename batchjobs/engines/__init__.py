"""Engines that answer requests. Only a replica's process creates one."""

from __future__ import annotations

from batchjobs.engines.base import Engine
from schemas.job import JobSpec


def create_engine(job: JobSpec) -> Engine:
    """Start the engine of the job; returns when it is ready."""
    if job.engine.kind == "echo":
        from batchjobs.engines.echo import EchoEngine

        return EchoEngine(job)
    from batchjobs.engines.vllm import VllmEngine

    return VllmEngine(job)
