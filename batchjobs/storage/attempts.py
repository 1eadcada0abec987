"""The record of each attempt (one life of one replica's process), kept in the output folder over all runs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from batchjobs.storage.output import ATTEMPTS
from batchjobs.storage.store import Store
from schemas.summary import Attempt

logger = logging.getLogger("batchjobs")


def read_attempts(store: Store) -> list[Attempt]:
    """Every attempt of every run so far, oldest first. One that cannot be read is only bookkeeping: a warning."""
    found = [_read_attempt(store, name) for name in store.names(ATTEMPTS) if name.endswith(".json")]
    return [attempt for attempt in found if attempt is not None]


def _read_attempt(store: Store, name: str) -> Attempt | None:
    try:
        return Attempt.model_validate_json(store.read(f"{ATTEMPTS}/{name}") or b"")
    except ValueError:
        logger.warning("The record %s/%s/%s cannot be read; its cost is not counted.", store.url, ATTEMPTS, name)
        return None


def write_attempt(store: Store, attempt: Attempt) -> None:
    """Write or renew a record."""
    store.publish(f"{ATTEMPTS}/{attempt.attempt:04d}.json", attempt.model_dump_json(indent=1).encode(), replace=True)


def close_lost(store: Store, attempts: list[Attempt]) -> list[Attempt]:
    """Attempts whose run was killed have no end: they end with their last sign of life. Only the lock's holder may."""
    closed = []
    for attempt in attempts:
        if attempt.cause is None:
            attempt = attempt.model_copy(update={"cause": "lost"})
            write_attempt(store, attempt)
        closed.append(attempt)
    return closed


def next_number(attempts: list[Attempt]) -> int:
    """Number of the next attempt, from 1."""
    return max((attempt.attempt for attempt in attempts), default=0) + 1


def renewed(attempt: Attempt, held_s: float, rows_done: int) -> Attempt:
    """The record with a new sign of life."""
    return attempt.model_copy(update={"held_s": round(held_s, 3), "rows_done": rows_done, "ended": datetime.now(UTC)})
