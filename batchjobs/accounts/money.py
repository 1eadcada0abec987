"""What a job has cost, and what it did not have to do."""

from __future__ import annotations

from collections.abc import Iterable

from batchjobs.accounts.engine_seconds import LABELS
from batchjobs.accounts.figures import RunFigures
from batchjobs.storage.checkpoint import Commit, Work
from schemas.job import ApiPriceSpec, CostSpec, JobSpec
from schemas.summary import Attempt, Cost, EngineSeconds, Rows, Saved, Saving, Tokens


def usd(held_s: float, usd_per_hour: float | None) -> float | None:
    """Price of `held_s` seconds; None without a price."""
    return None if usd_per_hour is None else held_s / 3600 * usd_per_hour


def cost(attempts: list[Attempt], held: EngineSeconds, rows: Rows, tokens: Tokens, job: JobSpec) -> Cost:
    """Money for the seconds that engines were held, each attempt at its own price, this run's by label."""
    prices = [usd(attempt.held_s, attempt.usd_per_hour) for attempt in attempts]
    known = [price for price in prices if price is not None]
    if job.cost is None and not known:
        return Cost()
    total = sum(known)
    by_label = {} if job.cost is None else {name: usd(getattr(held, name), job.cost.usd_per_hour) for name in LABELS}
    return Cost(
        usd_total=total,
        usd_this_run=usd(held.held, job.cost.usd_per_hour if job.cost else None),
        usd_per_1k_rows=_per(total, rows.ok, 1_000),
        usd_per_1m_input_tokens=_per(total, tokens.prompt, 1_000_000),
        usd_per_1m_output_tokens=_per(total, tokens.output, 1_000_000),
        usd_by_label={name: price for name, price in by_label.items() if price is not None},
        usd_at_api_price=_at_api_price(tokens, job.cost.api) if job.cost is not None and job.cost.api else None,
    )


def _per(total: float, count: int, unit: int) -> float | None:
    return total / count * unit if count else None


def _at_api_price(tokens: Tokens, price: ApiPriceSpec) -> float:
    return (tokens.prompt * price.usd_per_1m_input_tokens + tokens.output * price.usd_per_1m_output_tokens) / 1_000_000


def saved(earlier: list[Commit], run: RunFigures, held: EngineSeconds, price: CostSpec | None) -> Saved:
    """What this run found done already, and the engine-seconds that it would have taken.

    Rows that are resumed or copied are taken to cost as much per token, prompt and output together, as those that this
    run generated. Of the prefix cache the seconds are not known: a prompt token costs less than one of output, by how
    much depends on the load, and one run does not tell; `batchjobs bench prefix-cache` measures it.
    """
    told = run.tokens()
    tokens = told.get("prompt", 0) + told.get("output", 0)
    s_per_token = (held.productive + held.starved + held.tail) / tokens if tokens else None

    def saving(work: Work) -> Saving:
        saved_tokens = work.prompt_tokens + work.output_tokens
        seconds = None if s_per_token is None else s_per_token * saved_tokens
        money = None if seconds is None or price is None else usd(seconds, price.usd_per_hour)
        return Saving(**work.model_dump(), engine_seconds=seconds, usd=money)

    first = min((attempt.number for attempt in run.attempts), default=0)  # of this run
    journaled = [work for c in run.commits for number, work in c.reused_from.items() if number < first]
    return Saved(
        resume=saving(_sum([*map(_work_of, earlier), *journaled])),
        duplicates=saving(_sum(commit.copied for commit in run.commits)),
        prefix_cache=Saving(prompt_tokens=told.get("cached", 0)),
    )


def _work_of(commit: Commit) -> Work:
    tokens = commit.tokens
    return Work(rows=commit.rows, prompt_tokens=tokens.get("prompt", 0), output_tokens=tokens.get("output", 0))


def _sum(works: Iterable[Work]) -> Work:
    both = list(works)
    return Work(**{name: sum(getattr(work, name) for work in both) for name in Work.model_fields})
