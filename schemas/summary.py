"""`summary.json`: what the job did.

`rows`, `errors`, `warnings`, `tokens`, `cost`, `attempts` cover the job over all its runs, the rest this run.

Figures that are not known are null, never 0.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, computed_field

from schemas.figures import Distribution, Estimate

State = Literal["completed", "failed", "refused", "partial", "running"]
EXIT_CODES: dict[str, int] = {"completed": 0, "failed": 1, "refused": 2, "partial": 3}


class Rows(BaseModel):
    """total = ok + error = generated + deduplicated + reused + rejected; filtered rows have no output row."""

    planned: int = 0  # rows of the dataset, before the filter
    total: int = 0
    filtered: int = 0
    ok: int = 0
    error: int = 0
    generated: int = 0  # by the engine, in this run
    deduplicated: int = 0  # got the answer of an identical request, in this run
    reused: int = 0  # from a part or journal of an earlier run
    rejected: int = 0  # never reached the engine, in this run


class Tokens(BaseModel):
    """Tokens of the job; each generation counted once."""

    prompt: int = 0
    output: int = 0
    cached: int = 0  # prompt tokens that came from the prefix cache
    recomputed: int | None = None  # computed again after a preemption
    saved_by_deduplication: int = 0  # prompt and output tokens of copies, in none of the other figures


class Seconds(BaseModel):
    """Wall clock of this run by phase, in seconds."""

    wall: float = 0
    plan: float = 0
    waiting: float = 0  # for devices that another job held
    engine_start: float = 0
    generating: float = 0  # first request fed to last answer
    finish: float = 0  # last answer to end
    starved: float = 0  # free slots and nothing to run, though rows were left
    tail: float = 0  # all fed, fewer than half the slots running


class EngineSeconds(BaseModel):
    """Seconds that engines were held in this run, by label, summed over replicas. The labels add up to `held`."""

    held: float = 0
    startup: float = 0
    productive: float = 0
    starved: float = 0
    tail: float = 0
    draining: float = 0
    lost: float = 0


class Rate(BaseModel):
    """Requests and tokens per second."""

    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None


class Percentiles(BaseModel):
    """Seconds."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Latency(BaseModel):
    """Of the requests generated in this run. `ttft_s` includes the wait in our backlog, as vLLM means it."""

    queue_s: Percentiles = Percentiles()
    ttft_s: Percentiles = Percentiles()
    tpot_s: Percentiles = Percentiles()


class Decision(BaseModel):
    """A setting that the job left open, as it was decided before the engine started."""

    value: int | float | bool | None  # None: left to vLLM
    reason: str  # one sentence, with its numbers

    def text(self) -> str:
        """For people."""
        value = str(self.value).lower() if isinstance(self.value, bool) else f"{self.value:,}" if self.value else ""
        return f"{value or 'left to vLLM'}. {self.reason}"


class EngineFigures(BaseModel):
    """The engine of this run."""

    kind: str
    version: str | None = None
    replicas: int = 0  # side by side in this run; the figures below are of one, counts are summed
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    kv_cache_tokens: int | None = None
    kv_cache_usage_peak: float | None = None  # 0..1
    prefix_cache_hit_rate: float | None = None  # 0..1
    preemptions: int | None = None


class OrderFigures(BaseModel):
    """In which order this run fed the rows, and why; null if it fed none."""

    strategy: Literal["input", "longest_first", "shortest_first", "prefix"] | None = None
    reason: str | None = None  # "asked for", or what `auto` saw in the rows


class Cost(BaseModel):
    """US dollars, from the seconds that engines were held; null without `cost.usd_per_hour`."""

    usd_total: float | None = None
    usd_this_run: float | None = None
    usd_per_1k_rows: float | None = None
    usd_per_1m_input_tokens: float | None = None
    usd_per_1m_output_tokens: float | None = None
    usd_by_label: dict[str, float] = {}  # this run, by the labels of `engine_seconds`; adds up to `usd_this_run`
    usd_at_api_price: float | None = None  # the tokens of the job at `cost.api`'s price


class Saving(BaseModel):
    """Work that this run did not have to do."""

    rows: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    engine_seconds: float | None = None  # estimated, at this run's own speed; null if it generated nothing
    usd: float | None = None  # these seconds at the price of a replica


class Saved(BaseModel):
    """What this run found done already."""

    resume: Saving = Saving()  # rows from parts and journals of earlier runs
    duplicates: Saving = Saving()  # rows that got the answer of an identical one
    prefix_cache: Saving = Saving()  # prompt tokens whose KV cache was there (no rows, no output tokens)


class Health(BaseModel):
    """What may be wrong with answers, counted over all runs of the job; one answer may be counted under several."""

    answers: int = 0  # rows that the engine has answered, copies included
    empty: int = 0  # no text, or white space only
    truncated: int = 0  # cut by max_tokens or by the context
    invalid: int = 0  # not the JSON that was asked for
    repetitive: int = 0  # zlib makes them more than 2.4 times smaller


class Lengths(BaseModel):
    """Tokens of the requests that this run generated."""

    prompt_tokens: Distribution = Distribution()
    output_tokens: Distribution = Distribution()


class Timeline(BaseModel):
    """This run over time, in at most 240 equal steps; every list has one value for each step."""

    step_s: float = 0
    running: list[float] = []  # mean requests in the engines
    waiting: list[float] = []  # mean requests in the engines' own queues
    kv_cache_usage: list[float | None] = []  # 0..1, mean of the fullest
    prompt_tokens_per_s: list[float] = []
    output_tokens_per_s: list[float] = []
    rows_done: list[int] = []  # over all runs, at the end of the step


class Memory(BaseModel):
    """The most that one replica held at once in this run, in bytes; null if not known."""

    host_peak_bytes: int | None = None  # resident, all its processes together
    device_peak_bytes: int | None = None  # of its GPUs together


class Change(BaseModel):
    """One figure of two runs, side by side."""

    figure: str
    unit: Literal["s", "per s", "usd", "share", "bytes", "tokens", "count"]  # share: 0..1
    before: float | None
    now: float | None
    breach: str | None = None  # a sentence, if a threshold of `baseline` is exceeded

    @computed_field  # type: ignore[prop-decorator]
    @property
    def relative(self) -> float | None:
        """(now - before) / before; null if one is not known or `before` is 0."""
        return (self.now - self.before) / self.before if self.before and self.now is not None else None


class Previous(BaseModel):
    """This run against the one before it of the same job name."""

    ended: datetime  # when that one ended
    date: str | None = None  # that it was for, if its job file has date variables
    same_settings: bool  # model, sampling, engine, version, device: else the figures compare two different things
    settings: list[str] = []  # those that differ: "engine.max_num_seqs: 64 -> 128"
    is_small: bool = False  # too little was generated for its speed and cost to say something
    changes: list[Change] = []


class Attempt(BaseModel):
    """One life of one replica's process."""

    replica: int
    attempt: int
    started: datetime
    ended: datetime | None = None
    held_s: float = 0
    usd_per_hour: float | None = None
    device: str | None = None  # name of the GPU, or `cpu`, of the machine that the run was started on
    cause: str | None = None  # why it ended: see supervision.causes.Cause
    failure: str | None = None  # the same as a sentence, if it did not end well
    evidence: list[str] = []  # last lines of its log, if it did not end well
    remedy: str | None = None  # what the next attempt did otherwise
    notes: list[str] = []  # what it changed by itself while it ran
    quarantined: dict[int, str] = {}  # rows set aside at its end: row -> the engine's last words
    rows_done: int = 0
    settings: dict[str, object] = {}
    versions: dict[str, str] = {}


class ShardCounts(BaseModel):
    """Shards of the plan, committed by any run, and committed by earlier runs."""

    total: int = 0
    committed: int = 0
    reused: int = 0


class Summary(BaseModel):
    """What a run left behind; also the answer of a run that had nothing to do."""

    state: State
    exit_code: int
    job: str
    date: str | None = None  # that the job file's date variables stood for, such as 2026-11-28
    output: str
    message: str = ""  # one sentence: the verdict, and the next command where there is one
    stopped: bool = False  # before its end, by somebody who asked: not by a limit of its own
    rows: Rows
    errors: dict[str, int] = {}
    warnings: dict[str, int] = {}
    tokens: Tokens
    seconds: Seconds
    engine_seconds: EngineSeconds
    rate: Rate
    rate_wall: Rate  # the same over the whole wall clock
    latency: Latency
    engine: EngineFigures
    order: OrderFigures = OrderFigures()
    sizing: dict[str, Decision] = {}  # by setting
    cost: Cost
    saved: Saved = Saved()
    health: Health = Health()
    lengths: Lengths = Lengths()
    memory: Memory = Memory()
    timeline: Timeline = Timeline()
    foreseen: Estimate | None = None  # before this run began
    previous: Previous | None = None  # null for a first run
    attempts: list[Attempt] = []
    shards: ShardCounts
