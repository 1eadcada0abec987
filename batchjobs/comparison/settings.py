"""Which settings two runs do not have in common: decided ones, versions, model and input by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from batchjobs.comparison.outputs import Output
from batchjobs.fingerprint import model_id
from batchjobs.settings.history import settings_in_force
from schemas.comparison import SettingChange
from schemas.plan import Plan

_ENV = "engine.env."


def differing_settings(a: Output, b: Output) -> list[SettingChange]:
    """What differs between two outputs, by key of the job file; model, versions and input after them."""
    found = differing(_settings(a), _settings(b))
    return [change if not change.key.startswith(_ENV) else _without_values(change) for change in found]


def differing(before: Mapping[str, object], now: Mapping[str, object]) -> list[SettingChange]:
    """Keys whose values are not the same in both, in the order of the first that has them."""
    keys = [*before, *(key for key in now if key not in before)]
    pairs = ((key, _text(before.get(key)), _text(now.get(key))) for key in keys)
    return [SettingChange(key=key, before=then, now=later) for key, then, later in pairs if then != later]


def _text(value: object) -> str | None:
    """As a person would write it in a job file."""
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def _settings(output: Output) -> dict[str, object]:
    known: dict[str, object] = {**settings_in_force(output.job, output.summary)}
    known.pop("input.path", None)  # a copy is the same input
    versions = output.attempts[-1].versions if output.attempts else output.plan.versions
    return {
        **known,
        **{_ENV + name: value for name, value in output.job.engine.env.items()},
        "model by content": model_id(output.plan.model)[:12] if output.plan.model else None,
        **{f"version of {name}": version for name, version in versions.items()},
        "version of engine": output.summary.engine.version,
        "input": _input(output.plan),
    }


def _input(plan: Plan) -> str:
    digest = hashlib.sha256(json.dumps([[file.size, file.footer_sha256] for file in plan.files]).encode()).hexdigest()
    return f"{plan.rows:,} rows in {len(plan.files):,} files ({digest[:12]})"


def _without_values(change: SettingChange) -> SettingChange:
    """What is in the environment may be secret."""
    before, now = ("set" if value is not None else None for value in (change.before, change.now))
    return SettingChange(key=change.key, before=before, now="set otherwise" if before and now else now)
