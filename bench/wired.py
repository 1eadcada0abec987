"""The replica's own code around an engine that is there already, in this process: no start between two measurements."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from batchjobs.accounts.stopwatch import Stopwatch
from batchjobs.engines.base import Engine
from batchjobs.planning.plan import make_plan, read_dataset
from batchjobs.replica.assignment import Assignment
from batchjobs.replica.feed import Feeder
from batchjobs.replica.wiring import wire
from batchjobs.rows.tokens import load_tokenizer
from batchjobs.spec import resolve_references
from schemas.job import JobSpec


class Heard:
    """What a replica would tell its dispatcher."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        """Keep the message, as it would come out of the pipe."""
        self.messages.append(json.loads(json.dumps({"kind": kind, **fields})))


def assignment_of(job: JobSpec) -> Assignment:
    """What the dispatcher would send for a first attempt."""
    resolved = resolve_references(job)
    plan = make_plan(job, resolved, read_dataset(resolved))
    return Assignment(job=resolved, plan=plan, paths=[file.path for file in plan.files], attempt=1, has_worked=True)


def run_wired(assignment: Assignment, engine: Engine) -> tuple[Feeder, Heard]:
    """Run every shard of the plan through the engine; what it took is in the feeder, what it said beside it."""
    shards = iter(range(len(assignment.plan.shards)))
    commands: Any = SimpleNamespace(next_shard=lambda: next(shards, None), stop_by=None)
    heard: Any = Heard()
    tokenizer = load_tokenizer(assignment.job, assignment.plan.as_of)
    feeder = wire(assignment, engine, tokenizer, commands, heard, Stopwatch())
    feeder.run()
    return feeder, heard
