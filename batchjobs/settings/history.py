"""What each run of a job leaves for the next one, in the state store: one file per run, never changed.

Only helpful: what cannot be read or written is a warning, and the job goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.errors import OutputError
from batchjobs.fingerprint import model_id
from batchjobs.settings.device import find_device
from batchjobs.settings.in_force import with_settings
from batchjobs.settings.profiles import default_state
from batchjobs.storage.store import Store, open_store
from schemas.history import HistoryRecord, Setting
from schemas.job import EngineSpec, JobSpec
from schemas.plan import Plan
from schemas.summary import Summary, Timeline

logger = logging.getLogger("batchjobs")

_TROUBLE = (OSError, ValueError, OutputError)
_TIME = "%Y%m%dT%H%M%S.%fZ"  # sorts by time
# What is recorded of a job: all that can change its answers or its speed, nothing that may be secret.
_RECORDED: dict[str, Any] = {
    "input": {"path", "filter"},
    "prompt": True,
    "sampling": True,
    "model": True,
    "engine": set(EngineSpec.model_fields) - {"env"},
    "run": {"shard_rows", "order", "deduplicate", "feed"},
}


def folder_of(job: str) -> str:
    """Folder of a job's records. A name that is not fit for a path is made so, and told apart by its hash."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", job)[:100].lstrip(".")
    return f"history/{safe if safe == job else f'{safe}-{hashlib.sha256(job.encode()).hexdigest()[:8]}'}"


def records(job: JobSpec, last: int) -> list[HistoryRecord]:
    """The last so many records of a job, newest last. One that cannot be read is a warning and is left out."""
    try:
        store, folder = open_store(job.run.state or default_state()), folder_of(job.name)
        names = [f"{folder}/{file}" for file in store.names(folder) if file.endswith(".json")]
    except _TROUBLE as problem:
        logger.warning("What earlier runs have learnt cannot be read: %s. The run goes on without it.", problem)
        return []
    return list(islice(_readable(store, reversed(names)), last))[::-1]


def _readable(store: Store, names: Iterable[str]) -> Iterator[HistoryRecord]:
    for name in names:
        try:
            data = store.read(name)
            if data is not None:
                yield HistoryRecord.model_validate_json(data)
        except _TROUBLE as problem:
            logger.warning("The record %s/%s cannot be read and is left aside: %s.", store.url, name, problem)


def newest_record(job: JobSpec) -> HistoryRecord | None:
    """The record of the job's latest run, if there is one that can be read."""
    return next(iter(records(job, last=1)), None)


def lengths_of(record: HistoryRecord | None) -> OutputLengths:
    """How long answers of a job were, with the little weight that an earlier run has."""
    return OutputLengths(record.lengths if record is not None else None).faded()


def learnt_lengths(job: JobSpec) -> OutputLengths:
    """The same, of the job's latest run."""
    return lengths_of(newest_record(job))


def record_of(job: JobSpec, plan: Plan, summary: Summary, lengths: OutputLengths) -> HistoryRecord:
    """The record of a run that has just ended. `job` is as given, references kept: what it names may be secret."""
    return HistoryRecord(
        job=job.name,
        ended=datetime.now(UTC),
        summary=summary.model_copy(update={"timeline": Timeline()}),
        model=job.model.name if job.model is not None else None,
        revision=job.model.revision if job.model is not None else None,
        model_id=model_id(plan.model),
        fingerprint=plan.fingerprint,
        device=find_device(job).name,
        versions=summary.attempts[-1].versions if summary.attempts else {},
        settings=settings_in_force(job, summary),
        lengths=lengths.plain(),
    )


def settings_in_force(job: JobSpec, summary: Summary) -> dict[str, Setting]:
    """The settings of the run's last attempt by their key, what the engine itself decided included."""
    last = summary.attempts[-1].settings if summary.attempts else {}
    recorded = with_settings(job, last).model_dump(mode="json", include=_RECORDED)
    if job.engine.kind != "echo":
        del recorded["engine"]["echo"]
    engine = summary.engine
    told = {
        "engine.max_num_seqs": engine.max_num_seqs,
        "engine.max_num_batched_tokens": engine.max_num_batched_tokens,
        "engine.replicas": engine.replicas or None,
        "model.max_model_len": engine.max_model_len if job.model is not None else None,
    }
    return dict(_flat(recorded)) | {name: value for name, value in told.items() if value is not None}


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Setting]]:
    """Each setting with its dotted key; nothing for null and for what is empty."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        if value:
            yield key, json.dumps(value, ensure_ascii=False)
    elif value is not None:
        yield key, value


def write_record(job: JobSpec, record: HistoryRecord) -> None:
    """Leave a record of a run that has ended; `job` with its references resolved."""
    name = f"{folder_of(record.job)}/{record.ended.strftime(_TIME)}-{uuid.uuid4().hex[:8]}.json"
    try:
        open_store(job.run.state or default_state()).publish(name, record.model_dump_json(indent=1).encode())
    except _TROUBLE as problem:
        logger.warning("What this run has learnt is not remembered: %s.", problem)
