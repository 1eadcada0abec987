"""The replica's own code around an engine that is there already, in this process: no start between two measurements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from batchjobs.engines.base import Engine
from batchjobs.feed import Feeder
from batchjobs.plan import make_plan, read_dataset
from batchjobs.replica import wire
from batchjobs.spec import resolve_references
from schemas.job import JobSpec
from schemas.plan import Plan


class Heard:
    """What a replica would tell its dispatcher."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        """Keep the message."""
        self.messages.append({"kind": kind, **fields})


def order_of(job: JobSpec) -> tuple[dict[str, Any], Plan]:
    """What the dispatcher would send for a first attempt, and the plan."""
    resolved = resolve_references(job)
    plan = make_plan(job, resolved, read_dataset(resolved))
    return {
        "job": resolved.model_dump(mode="json"),
        "plan": plan.model_dump_json(),
        "paths": [file.path for file in plan.files],
        "attempt": 1,
        "lowered": False,
        "groups": [],
        "quarantined": {},
        "has_worked": True,
        "retry": [],
        "retried_shards": [],
    }, plan


def run_wired(order: dict[str, Any], plan: Plan, engine: Engine) -> tuple[Feeder, Heard]:
    """Run every shard of the order through the engine; what it took is in the feeder, what it said beside it."""
    shards = iter(range(len(plan.shards)))
    commands: Any = SimpleNamespace(next_shard=lambda: next(shards, None), stop_by=None)
    heard: Any = Heard()
    feeder = wire(order, engine, commands, heard)
    feeder.run()
    return feeder, heard
