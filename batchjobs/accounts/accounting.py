"""The summary from the commit records, the attempts and what this run saw."""

from __future__ import annotations

from collections.abc import Iterable

from batchjobs.accounts.engine_seconds import count_engine_seconds
from batchjobs.accounts.figures import RunFigures
from batchjobs.accounts.money import cost, saved
from batchjobs.storage.checkpoint import Commit
from schemas.figures import Estimate
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.summary import (
    EXIT_CODES,
    Attempt,
    Decision,
    EngineFigures,
    Health,
    Latency,
    Lengths,
    OrderFigures,
    Rate,
    Rows,
    Seconds,
    ShardCounts,
    State,
    Summary,
    Tokens,
)


def summarise(
    job: JobSpec,
    plan: Plan,
    earlier: list[Commit],
    run: RunFigures,
    attempts: list[Attempt],
    wall_s: float,
    plan_s: float,
    sizing: dict[str, Decision],
    foreseen: Estimate | None = None,
) -> Summary:
    """The summary of a run. `earlier` are the commits of earlier runs, `wall_s` and `plan_s` seconds of this one."""
    commits = [*earlier, *run.commits]
    rows = count_rows(plan, earlier, run.commits)
    state, message = verdict(job, plan, rows, len(commits), run)
    tokens = count_tokens(commits, run)
    seconds, engine_seconds = count_seconds(run, wall_s, plan_s), count_engine_seconds(run.attempts)
    return Summary(
        state=state,
        exit_code=EXIT_CODES[state],
        job=job.name,
        date=job.date,
        output=job.output.path,
        message=message,
        stopped=run.stopped and run.limit is None and len(commits) < len(plan.shards),
        rows=rows,
        errors=added(commit.errors for commit in commits),
        warnings=added(commit.warnings for commit in commits),
        tokens=tokens,
        seconds=seconds,
        engine_seconds=engine_seconds,
        rate=rate(run, seconds.generating),
        rate_wall=rate(run, wall_s),
        latency=latency(run),
        engine=engine_figures(job.engine.kind, run),
        order=OrderFigures.model_validate(run.order()),
        sizing=sizing,
        foreseen=foreseen,
        cost=cost(attempts, engine_seconds, rows, tokens, job),
        saved=saved(earlier, run, engine_seconds, job.cost),
        health=count_health(commits),
        lengths=Lengths(**{name: run.lengths(name).distribution() for name in Lengths.model_fields}),
        memory=run.memory(),
        timeline=run.timeline,
        attempts=sorted(attempts, key=lambda attempt: attempt.attempt),
        shards=ShardCounts(total=len(plan.shards), committed=len(commits), reused=len(earlier)),
    )


def added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum of many counts by name, most frequent first."""
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def count_rows(plan: Plan, earlier: list[Commit], now: list[Commit]) -> Rows:
    """Rows of all committed shards; what an open shard had is not counted."""
    both = [*earlier, *now]
    ok, total = sum(c.ok for c in both), sum(c.rows for c in both)
    rejected, deduplicated = sum(c.rejected for c in now), sum(c.deduplicated for c in now)
    return Rows(
        planned=plan.rows,
        total=total,
        filtered=sum(c.filtered for c in both),
        ok=ok,
        error=total - ok,
        generated=sum(c.rows - c.reused for c in now) - rejected - deduplicated,
        deduplicated=deduplicated,
        reused=sum(c.rows for c in earlier) + sum(c.reused for c in now),
        rejected=rejected,
    )


def verdict(job: JobSpec, plan: Plan, rows: Rows, committed: int, run: RunFigures) -> tuple[State, str]:
    """The final state, and what to tell a person."""
    shards = f"{committed:,} of {len(plan.shards):,} shards are committed"
    which = f" (--date {job.date})" if job.date is not None else ""  # tomorrow, the same command means another day
    if run.failure is not None:
        return "failed", f"{run.failure}. {shards}; run the same command again to go on{which}."
    if committed < len(plan.shards) and run.limit is not None:
        return "partial", f"{run.limit.what}. {shards}; {run.limit.rest}. {run.limit.then}{which}"
    if committed < len(plan.shards):
        return "partial", f"Stopped. {shards}; run the same command again to go on{which}."
    rate = rows.error / rows.total if rows.total else 0.0
    if rate > job.run.max_error_rate:
        return (
            "partial",
            f"{rows.error:,} of {rows.total:,} rows failed ({rate:.2%}, max_error_rate {job.run.max_error_rate:.2%}).",
        )
    return "completed", f"All {plan.rows:,} rows are accounted for."


def count_tokens(commits: list[Commit], run: RunFigures) -> Tokens:
    """Tokens of the job over all its runs."""
    counts = added(commit.tokens for commit in commits)
    return Tokens(
        prompt=counts.get("prompt", 0),
        output=counts.get("output", 0),
        cached=counts.get("cached", 0),
        recomputed=run.stats()["recomputed_tokens"],
        saved_by_deduplication=counts.get("saved", 0),
    )


def count_seconds(run: RunFigures, wall_s: float, plan_s: float) -> Seconds:
    """Wall clock of this run by phase."""
    generating = run.generating_s
    return Seconds(
        wall=wall_s,
        plan=plan_s,
        waiting=run.waited_s,
        engine_start=run.start_s,
        generating=generating,
        finish=max(0.0, wall_s - plan_s - run.waited_s - run.start_s - generating),
        starved=run.lap("starved"),
        tail=run.lap("tail"),
    )


def count_health(commits: list[Commit]) -> Health:
    """Health of all committed answers; parts of versions that did not look at it count as no answers."""
    return Health(**{name: sum(getattr(c.health, name) for c in commits) for name in Health.model_fields})


def rate(run: RunFigures, seconds: float) -> Rate:
    """What this run generated, per second."""
    rows, tokens = run.rows(), run.tokens()
    if not seconds or not tokens:
        return Rate()
    generated = rows["ok"] + rows["error"] - rows["rejected"] - rows["deduplicated"]
    return Rate(
        requests_per_s=generated / seconds,
        output_tokens_per_s=tokens["output"] / seconds,
        total_tokens_per_s=(tokens["prompt"] + tokens["output"]) / seconds,
    )


def latency(run: RunFigures) -> Latency:
    """Percentiles over the requests of this run."""
    return Latency(**{name: histogram.percentiles() for name, histogram in run.latency().items()})


def engine_figures(kind: str, run: RunFigures) -> EngineFigures:
    """The engine of this run, as far as it told."""
    stats, known = run.stats(), run.engine
    queries, hits = stats["prefix_cache_queries"], stats["prefix_cache_hits"]
    told = ("version", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "kv_cache_tokens")
    return EngineFigures(
        kind=kind,
        replicas=len({attempt.replica for attempt in run.attempts}),
        **{name: known.get(name) for name in told},
        kv_cache_usage_peak=stats["kv_cache_usage_peak"],
        prefix_cache_hit_rate=hits / queries if queries and hits is not None else None,
        preemptions=stats["preemptions"],
    )
