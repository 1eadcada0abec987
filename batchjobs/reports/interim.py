"""A summary for a job that has none, because no run has come to its end since the last one began."""

from __future__ import annotations

from batchjobs.accounts.accounting import added, usd
from batchjobs.storage.attempts import read_attempts
from batchjobs.storage.checkpoint import Commit
from batchjobs.storage.store import Store
from schemas.plan import Plan
from schemas.summary import (
    Cost,
    EngineFigures,
    EngineSeconds,
    Health,
    Latency,
    Rate,
    Rows,
    Seconds,
    ShardCounts,
    Summary,
    Tokens,
)


def interim_summary(store: Store, plan: Plan, commits: list[Commit], name: str) -> Summary:
    """What commit records and attempts tell of a job that runs or was interrupted; all else stays not known."""
    total, ok = sum(commit.rows for commit in commits), sum(commit.ok for commit in commits)
    tokens = added(commit.tokens for commit in commits)
    attempts = read_attempts(store)
    prices = [price for attempt in attempts if (price := usd(attempt.held_s, attempt.usd_per_hour)) is not None]
    return Summary(
        state="running",
        exit_code=3,
        job=name,
        output=store.url,
        message=f"{len(commits):,} of {len(plan.shards):,} shards are committed, and this shows what they tell. "
        f"`batchjobs status {store.url}` says whether a run is at work, and if none is, the same run command goes on.",
        rows=Rows(
            planned=plan.rows,
            total=total,
            filtered=sum(commit.filtered for commit in commits),
            ok=ok,
            error=total - ok,
        ),
        errors=added(commit.errors for commit in commits),
        warnings=added(commit.warnings for commit in commits),
        health=Health(**added(commit.health.model_dump() for commit in commits)),
        tokens=Tokens(
            prompt=tokens.get("prompt", 0),
            output=tokens.get("output", 0),
            cached=tokens.get("cached", 0),
            saved_by_deduplication=tokens.get("saved", 0),
        ),
        seconds=Seconds(),
        engine_seconds=EngineSeconds(),
        rate=Rate(),
        rate_wall=Rate(),
        latency=Latency(),
        engine=EngineFigures(
            kind=plan.identity["engine"]["kind"],
            version=next((a.versions["engine"] for a in reversed(attempts) if "engine" in a.versions), None),
        ),
        cost=Cost(usd_total=sum(prices) if prices else None),
        attempts=attempts,
        shards=ShardCounts(total=len(plan.shards), committed=len(commits)),
    )
