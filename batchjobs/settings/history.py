"""What each run of a job leaves for the next one, in the state store: one file per run, never changed.

Only helpful: what cannot be read or written is a warning, and the job goes on.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from datetime import UTC, datetime

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.errors import OutputError
from batchjobs.settings.profiles import default_state
from batchjobs.storage.store import open_store
from schemas.history import HistoryRecord
from schemas.job import JobSpec
from schemas.summary import Summary

logger = logging.getLogger("batchjobs")

_TROUBLE = (OSError, ValueError, OutputError)
_TIME = "%Y%m%dT%H%M%S.%fZ"  # sorts by time


def folder_of(job: str) -> str:
    """Folder of a job's records. A name that is not fit for a path is made so, and told apart by its hash."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", job)[:100].lstrip(".")
    return f"history/{safe if safe == job else f'{safe}-{hashlib.sha256(job.encode()).hexdigest()[:8]}'}"


def newest_record(job: JobSpec) -> HistoryRecord | None:
    """The record of the job's latest run, if there is one that can be read."""
    try:
        store, folder = open_store(job.run.state or default_state()), folder_of(job.name)
        names = [name for name in store.names(folder) if name.endswith(".json")]
        data = store.read(f"{folder}/{names[-1]}") if names else None
        return None if data is None else HistoryRecord.model_validate_json(data)
    except _TROUBLE as problem:
        logger.warning("What earlier runs have learnt cannot be read: %s. The run goes on without it.", problem)
        return None


def learnt_lengths(job: JobSpec) -> OutputLengths:
    """How long answers of this job were, with the little weight that an earlier run has."""
    before = newest_record(job)
    return OutputLengths(before.lengths if before is not None else None).faded()


def write_record(job: JobSpec, summary: Summary, lengths: OutputLengths) -> None:
    """Leave a record of a run that has ended."""
    now = datetime.now(UTC)
    record = HistoryRecord(job=job.name, ended=now, summary=summary, lengths=lengths.plain())
    name = f"{folder_of(job.name)}/{now.strftime(_TIME)}-{uuid.uuid4().hex[:8]}.json"
    try:
        open_store(job.run.state or default_state()).publish(name, record.model_dump_json(indent=1).encode())
    except _TROUBLE as problem:
        logger.warning("What this run has learnt is not remembered: %s.", problem)
