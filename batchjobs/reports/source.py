"""What a report is made from: the output folder of a job that is finished, running or interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from batchjobs.reports.interim import interim_summary
from batchjobs.reports.parts import Parts, open_parts
from batchjobs.storage.output import SPEC, not_ours, read_plan, read_summary
from batchjobs.storage.store import Store
from schemas.plan import Plan
from schemas.summary import Summary


@dataclass(frozen=True)
class Source:
    """An output folder, opened."""

    plan: Plan
    parts: Parts
    spec: dict[str, Any]  # the job file as it is stored, with whatever secrets a person wrote into it
    summary: Summary  # of the latest run; while there is none, what parts and attempts tell


def open_source(store: Store) -> Source:
    """Raises OutputError for a folder that is no output of ours."""
    plan = read_plan(store)
    if plan is None:
        raise not_ours(store)
    parts, spec = open_parts(store, plan), _spec(store)
    summary = read_summary(store) or interim_summary(store, plan, parts.commits, str(spec.get("name", "job")))
    return Source(plan, parts, spec, summary)


def _spec(store: Store) -> dict[str, Any]:
    """Empty if it cannot be read, for the rest is worth showing all the same."""
    try:
        spec = yaml.safe_load(store.read(SPEC) or b"")
    except yaml.YAMLError:
        return {}
    return spec if isinstance(spec, dict) else {}
