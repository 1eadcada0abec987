"""What a running job tells whoever watches: the terminal, `progress.json`, the Prefect UI."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from pydantic import BaseModel

from batchjobs.accounts.figures import RunFigures
from batchjobs.accounts.money import usd
from batchjobs.storage.checkpoint import Commit
from batchjobs.supervision.limits import Limits
from batchjobs.supervision.pace import seconds_left
from schemas.figures import Estimate
from schemas.plan import Plan

Phase = Literal["starting", "generating", "finishing"]


class Progress(BaseModel):
    """A moment of a run."""

    phase: Phase
    rows_total: int  # of the dataset, before the filter
    rows_done: int  # with a result or filtered, over all runs
    rows_reused: int  # of these, from earlier runs
    rows_deduplicated: int = 0  # of these, by this run, with the answer of an identical row
    errors: int
    output_tokens: int  # this run
    output_tokens_per_s: float | None = None  # over the generating window
    rows_per_s: float | None = None
    seconds_left: float | None = None  # until everything is done: measured, and at first as foreseen
    ends_at: datetime | None = None  # the same as a moment
    deadline: datetime | None = None  # of this run, which ends by then whatever is left
    shards_total: int
    shards_committed: int
    running: int = 0
    waiting: int = 0
    kv_cache_usage: float | None = None  # 0..1, of the fullest
    usd_so_far: float | None = None  # this run
    usd_forecast: float | None = None  # when everything is done
    max_cost_usd: float | None = None  # of this run, which ends before it costs more
    attempt: int  # the latest
    replicas: int = 1  # alive
    elapsed_s: float  # of the attempt that is alive for longest


class Reporter(Protocol):
    """Whoever watches a run. Called about once a second, from the dispatcher's thread."""

    def progress(self, now: Progress) -> None:
        """The latest figures."""

    def log(self, line: str) -> None:
        """An important line of a replica's log."""


class Silent:
    """Nobody watches."""

    def progress(self, now: Progress) -> None:
        """Nothing."""

    def log(self, line: str) -> None:
        """Nothing."""


def progress_of(
    run: RunFigures, plan: Plan, earlier: list[Commit], limits: Limits, foreseen: Estimate | None
) -> Progress:
    """The moment that the latest figures describe."""
    rows, tokens, alive = run.rows(), run.tokens(), run.alive
    stats = [attempt.last["stats"] for attempt in alive if "stats" in attempt.last]
    reused = sum(commit.rows + commit.filtered for commit in earlier)
    kept = [attempt for attempt in run.attempts if not attempt.is_over or attempt.stopped]  # a dead one's run again
    open_rows = sum(attempt.last.get("rows", {}).get("open", 0) for attempt in kept)
    # A commit is told at once, the rows of open shards once a second: for a moment a shard may count twice.
    done = min(plan.rows, reused + sum(commit.rows + commit.filtered for commit in run.commits) + open_rows)
    committed = len(earlier) + len(run.commits)
    generating = run.generating_s
    running = sum(each.get("running", 0) for each in stats)
    now = datetime.now(UTC)
    worked_s = (now - limits.began).total_seconds() - run.waited_s
    left = seconds_left(run, plan.rows - reused, done - reused, running, foreseen, worked_s)
    so_far = usd(run.held_s, limits.usd_per_hour)
    rest = usd((left or 0.0) * max(1, len(alive)), limits.usd_per_hour)
    return Progress(
        phase="finishing" if committed == len(plan.shards) else "generating" if run.is_ready else "starting",
        rows_total=plan.rows,
        rows_done=done,
        rows_reused=reused,
        rows_deduplicated=rows["deduplicated"],
        errors=rows["error"] + sum(sum(commit.errors.values()) for commit in earlier),
        output_tokens=tokens.get("output", 0),
        output_tokens_per_s=tokens.get("output", 0) / generating if generating else None,
        rows_per_s=(done - reused) / generating if generating else None,
        seconds_left=left,
        ends_at=None if left is None else now + timedelta(seconds=left),
        deadline=limits.deadline,
        shards_total=len(plan.shards),
        shards_committed=committed,
        running=running,
        waiting=sum(each.get("waiting", 0) for each in stats),
        kv_cache_usage=max((u for each in stats if (u := each.get("kv_cache_usage")) is not None), default=None),
        usd_so_far=so_far,
        usd_forecast=None if left is None or so_far is None or rest is None else so_far + rest,
        max_cost_usd=limits.max_cost_usd,
        attempt=run.attempts[-1].number if run.attempts else 0,
        replicas=len(alive),
        elapsed_s=max((attempt.held_s for attempt in alive), default=0.0),
    )
