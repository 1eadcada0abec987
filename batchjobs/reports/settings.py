"""With what a job ran: settings and why, versions, and the job file itself without its secrets."""

from __future__ import annotations

from typing import Any

import yaml

from batchjobs.reports.views import Fact, Table
from batchjobs.reports.wording import count
from schemas.plan import Plan
from schemas.summary import Summary

_MOST_YAML = 20_000  # characters of the job file


def decided(summary: Summary) -> Table:
    """Settings that the job left open, with the reason for each."""
    rows = [
        [name, _value(decision.value, "left to vLLM"), decision.reason] for name, decision in summary.sizing.items()
    ]
    return Table(["Setting", "value", "why"], frozenset({1}), rows)


def in_force(summary: Summary) -> list[Fact]:
    """What the latest engine was started with, and what it says of itself."""
    last = summary.attempts[-1].settings if summary.attempts else {}
    told = summary.engine.model_dump(
        include={"max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_cache_tokens"}
    )
    both = {**last, **{name: value for name, value in told.items() if value is not None}}
    return [Fact(name, _value(value, "vLLM's own")) for name, value in sorted(both.items()) if value != {}]


def _value(value: object, unset: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return count(value)
    return unset if value is None else str(value)


def versions(summary: Summary, plan: Plan) -> list[Fact]:
    """Of the latest attempt; of the plan if there was none."""
    known = summary.attempts[-1].versions if summary.attempts else plan.versions
    named = {summary.engine.kind if name == "engine" else name: version for name, version in known.items()}
    fingerprint = Fact("job fingerprint", plan.fingerprint[:16])
    return [*(Fact(name, version) for name, version in sorted(named.items())), fingerprint]


def job_file(spec: dict[str, Any]) -> str:
    """The spec as YAML; `spec` has lost its secrets already."""
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)
    return (
        text if len(text) <= _MOST_YAML else text[:_MOST_YAML] + f"\n… ({len(text) - _MOST_YAML:,} more characters)\n"
    )
