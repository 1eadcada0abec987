"""Settings that go over the job's own: what was decided, what deaths have taught, what follows from the place."""

from __future__ import annotations

from typing import Any

from schemas.job import JobSpec

Settings = dict[str, Any]  # keys of `engine`, `max_model_len`, or `extra.<name>`


def with_settings(job: JobSpec, settings: Settings) -> JobSpec:
    """The job with these over its own settings."""
    data = job.model_dump()
    for name, value in settings.items():
        if name == "max_model_len":
            data["model"][name] = value
        elif name.startswith("extra."):
            data["engine"]["extra"][name.removeprefix("extra.")] = value
        else:
            data["engine"][name] = value
    return JobSpec.model_validate(data)
