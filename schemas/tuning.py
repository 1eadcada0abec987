"""What `batchjobs tune` and `batchjobs bench prefix-cache` have measured (`--json`). What is not known is null."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from schemas.summary import Percentiles


class Variant(BaseModel):
    """What a setting is tried with. Null is the job's own; another one changes answers."""

    model_config = ConfigDict(frozen=True)

    model: str | None = None  # folder or hub name
    kv_cache_dtype: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the job's answers stay what they are."""
        return self.model is None and self.kv_cache_dtype is None


class Setting(BaseModel):
    """What one trial runs with, over the job's own settings."""

    model_config = ConfigDict(frozen=True)

    variant: Variant = Variant()
    max_num_seqs: int
    max_num_batched_tokens: int | None = None  # null: as the job has it


class Trial(BaseModel):
    """One setting, and what it did on the sample. Rates and latencies are as in the summary of a run."""

    setting: Setting
    outcome: Literal["measured", "skipped", "failed", "stopped"]
    reason: str | None = None  # why it was not measured, or what else to know, as a sentence
    out_of_memory: bool = False
    runs: int = 0  # that were measured; the figures are those of the one with the median total tokens/s
    max_num_batched_tokens: int | None = None  # in force
    kv_cache_tokens: int | None = None  # that the engine has
    rows_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    total_tokens_per_s_range: tuple[float, float] | None = None  # lowest and highest of several runs
    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    kv_cache_usage_peak: float | None = None  # 0..1
    preemptions: int | None = None
    start_s: float | None = None  # from process start to a ready engine
    generating_s: float | None = None


class Knee(BaseModel):
    """The setting to use with one variant: the smallest that is nearly as fast as the fastest."""

    setting: Setting
    total_tokens_per_s: float
    fastest: Setting
    fastest_total_tokens_per_s: float


class Tuning(BaseModel):
    """What was tried, and what came out."""

    job: str
    rows: int  # of the sample
    rows_of_job: int  # before the filter
    within: float  # the knee is the smallest setting within this share of the fastest
    engine: str  # kind and version
    device: str
    trials: list[Trial]
    knees: list[Knee]  # one for each variant with a measured trial, the job's own first
    notes: list[str] = []  # sentences
    stopped: bool = False  # before everything was tried

    @property
    def own_knee(self) -> Knee | None:
        """What is recommended: it changes no answer."""
        return next((knee for knee in self.knees if knee.setting.variant.is_own), None)


class Phase(BaseModel):
    """One of the times that the load was run. Seconds on the engine's clock."""

    name: Literal["cold", "hot", "independent"]
    requests: int
    failed: int
    prompt_tokens: int
    reused_tokens: int  # prompt tokens that came from the prefix cache
    output_tokens: int
    hit_rate: float  # reused / prompt tokens
    ttft_s: Percentiles
    tpot_s: Percentiles
    queue_s: Percentiles
    total_s: float  # from the call to its last answer
    total_tokens_per_s: float


class PrefixCacheBench(BaseModel):
    """The same load three times in the life of one engine."""

    job: str
    engine: str
    rows: int
    distinct_prompt_tokens: int | None  # that the load leaves in the cache: prompt less reused tokens, when cold
    kv_cache_tokens: int | None
    phases: list[Phase]
    meaning: list[str]  # sentences
