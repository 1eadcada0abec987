"""Tables that the Prefect UI shows of a job that has ended: its replicas and attempts, its slowest or failed shards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchjobs.reports.wording import instant
from batchjobs.storage.checkpoint import Commit, part_name
from schemas.summary import Attempt

Table = list[dict[str, Any]]

MOST_SHARDS = 20
_MOST_ATTEMPTS = 100  # the latest: a UI is no place for more


def attempts_table(attempts: list[Attempt]) -> Table:
    """One line for each life of a replica, over all runs of the job; the latest 100."""
    return [
        {
            "replica": attempt.replica,
            "attempt": attempt.attempt,
            "started": instant(attempt.started),
            "ended": instant(attempt.ended),
            "cause": attempt.failure or attempt.cause or "",
            "remedy": attempt.remedy or "",
            "rows": attempt.rows_done,
        }
        for attempt in attempts[-_MOST_ATTEMPTS:]
    ]


def shards_table(commits: Iterable[Commit]) -> Table:
    """The 20 shards to look at: those with most failed rows first, then those that took longest."""
    worst = sorted(commits, key=lambda commit: (-sum(commit.errors.values()), -commit.seconds, commit.shard))
    return [
        {
            "shard": commit.shard,
            "part": part_name(commit.shard),
            "rows": commit.rows,
            "errors": sum(commit.errors.values()),
            "error codes": ", ".join(f"{code} {count}" for code, count in sorted(commit.errors.items())),
            "seconds": round(commit.seconds, 3),
            "attempt": commit.attempt,
        }
        for commit in worst[:MOST_SHARDS]
    ]
