"""The job spec: one job, one dataset, one output folder. Every key of a job file is a field here.

`null` (or a missing key) in `model` and `engine` means "vLLM's own default".
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from schemas.deadline import parse_deadline, parse_duration
from schemas.request import PromptSpec, SamplingSpec
from schemas.section import Section

Order = Literal["auto", "input", "longest_first", "shortest_first", "prefix"]
Deduplicate = Literal["auto", "always", "never"]
Feed = Literal["continuous", "generate"]


class ReadySpec(Section):
    """When the input is complete, and how long a run waits for that. Changes no result."""

    marker: str | None = Field(
        None,
        description="File that whoever writes the input writes last: a name in the input's folder, such as `_SUCCESS`, "
        "or a path or URL.",
    )
    min_rows: int | None = Field(None, ge=1, description="Rows that the dataset has at least, before the filter.")
    wait: str | None = Field(
        None, description="How long a run waits for what is missing (`2h`, `45m`); default: it is refused at once."
    )

    @field_validator("wait")
    @classmethod
    def _wait_is_a_duration(cls, value: str | None) -> str | None:
        if value is not None:
            parse_duration(value)
        return value


class InputSpec(Section):
    """Where the rows come from."""

    path: str | list[str] = Field(description="Parquet file, folder, glob, or a list of them; any fsspec URL.")
    id_column: str | None = Field(None, description="Column that names a row; `verify` checks that it is unique.")
    filter: str | None = Field(
        None, description="Row-wise SQL predicate (Polars), e.g. \"lang = 'en'\"; null is false."
    )
    limit: int | None = Field(None, ge=1, description="Only the first N rows of the dataset. `run --limit N` sets it.")
    ready: ReadySpec | None = Field(None, description="When the input is complete; a run may wait for that.")
    storage_options: dict[str, Any] = Field(default_factory=dict, description="Passed to fsspec for the input.")


class ModelSpec(Section):
    """Which model answers."""

    name: str = Field(description="Folder or hub name of the model.")
    revision: str | None = Field(None, description="Revision of a hub model; pin it to make runs comparable.")
    tokenizer: str | None = Field(None, description="Folder or hub name of the tokenizer; default the model's.")
    tokenizer_revision: str | None = None
    trust_remote_code: bool = False
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | Literal["auto"] | None = Field(
        None, description="Context length in tokens; default the model's. `auto` fits the data; results are the same."
    )
    reasoning_parser: str | None = Field(None, description="vLLM's parser that splits reasoning from the answer.")

    @model_validator(mode="after")
    def _length(self) -> ModelSpec:
        if isinstance(self.max_model_len, int) and self.max_model_len < 1:
            raise ValueError(
                f"max_model_len: found {self.max_model_len}; allowed: null, 'auto' or an integer of at least 1"
            )
        return self


class EchoSpec(Section):
    """Behaviour of the model-free `echo` engine. The `*_rows` are row numbers of the dataset."""

    answer: str = Field("{prompt}", description="The answer; {prompt} and {row} are replaced.")
    tokens_per_s: float | None = Field(None, gt=0, description="Speed over all running requests; default unlimited.")
    start_s: float = Field(0, ge=0, description="Seconds that the start takes.")
    max_model_len: int = Field(131_072, ge=1)
    vocab_size: int = Field(1_000_000, ge=1, description="Token ids from a column must be smaller.")
    fail_at_start: str | None = Field(None, description="Raise this message at start.")
    reject_rows: list[int] = Field(default_factory=list, description="Refused on submit.")
    error_rows: list[int] = Field(default_factory=list, description="End with finish reason `error`.")
    abort_rows: list[int] = Field(default_factory=list, description="End with finish reason `abort`.")
    raise_rows: list[int] = Field(default_factory=list, description="The engine raises while it runs one of these.")
    die_rows: list[int] = Field(default_factory=list, description="The process is killed while it runs one of these.")
    oom_above_seqs: int | None = Field(None, ge=1, description="Out of memory with more requests running.")
    hang_rows: list[int] = Field(default_factory=list, description="The engine hangs while it runs one of these.")


class EngineSpec(Section):
    """The engine and what it holds. Only `kind` and `extra` can change a result."""

    kind: Literal["vllm", "echo"] = Field("vllm", description="`echo` answers without a model: the dry run.")
    max_num_seqs: int | Literal["auto"] = Field(
        "auto",
        description="Requests that run at the same time; `auto`: what fits the KV cache, from a sample of the rows.",
    )
    max_num_batched_tokens: int | Literal["auto"] = Field(
        "auto", description="Tokens of one engine step; `auto`: vLLM's own number, less if the job cannot use it."
    )
    tensor_parallel_size: int = Field(1, ge=1, description="GPUs of one replica.")
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    kv_cache_memory_bytes: int | None = Field(None, ge=1, description="Bytes of KV cache; always set it on CPU.")
    enforce_eager: bool | None = Field(
        None,
        description="No compilation, no CUDA graphs: starts faster, runs slower. Default: what takes less time in all.",
    )
    enable_prefix_caching: bool | None = None
    replicas: int | Literal["auto"] = Field(
        "auto", description="Engines side by side; `auto` is one per GPU (or group of tensor_parallel_size), else 1."
    )
    python: str | None = Field(None, description="Interpreter of the replicas, e.g. of an environment with vLLM.")
    env: dict[str, str] = Field(default_factory=dict, description="Extra environment variables of the replicas.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Any other argument of vllm.LLM, untouched.")
    echo: EchoSpec = Field(default_factory=lambda: EchoSpec())

    @model_validator(mode="after")
    def _counts(self) -> EngineSpec:
        for name in ("max_num_seqs", "max_num_batched_tokens", "replicas"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{name}: found {value}; allowed: 'auto' or an integer of at least 1")
        for name in self.extra:
            if name in ENGINE_OWN_NAMES:
                raise ValueError(f"extra.{name}: allowed: {ENGINE_OWN_NAMES[name]}")
        return self


ENGINE_OWN_NAMES = {
    "model": "model.name",
    "hf_config_path": "model.name",
    **{n: f"model.{n}" for n in ModelSpec.model_fields if n not in ("name",)},
    **{n: f"engine.{n}" for n in ("max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size",
                                  "gpu_memory_utilization", "kv_cache_memory_bytes", "enforce_eager",
                                  "enable_prefix_caching")},
    "disable_log_stats": "nothing: the summary needs the engine's statistics",
    "data_parallel_size": "engine.replicas",
}  # fmt: skip


class OutputSpec(Section):
    """Where the results go."""

    path: str = Field(description="Folder of the results; any fsspec URL. Empty, or of this same job.")
    keep_columns: list[str] | None = Field(None, description="Input columns to copy; default all.")
    prefix: str = Field("", description="Put before the names of the result columns, e.g. `llm_`.")
    storage_options: dict[str, Any] = Field(default_factory=dict, description="Passed to fsspec for the output.")


class RunSpec(Section):
    """How the job runs. Only `shard_rows` is part of the job's identity."""

    shard_rows: int = Field(4096, ge=1, description="Rows per shard, the unit of commit.")
    order: Order = Field(
        "auto",
        description="In which order rows are fed; never changes results. `prefix` keeps together what begins alike; "
        "`auto` is that where it pays, else longest first if answers differ much in length, else `input`.",
    )
    deduplicate: Deduplicate = Field(
        "auto",
        description="Identical requests are generated once and share the answer: `auto` if it is determined "
        "(temperature 0, or a seed), `always`, or `never`.",
    )
    feed: Feed = Field(
        "continuous",
        description="`generate`: one `LLM.generate` call per shard, whose end the next shard waits for. The same rows; "
        "slower; a crash, or a stop that outlasts `drain_seconds`, costs the whole open shard.",
    )
    max_error_rate: float = Field(0.02, ge=0, le=1, description="Above this share of failed rows the job is partial.")
    start_seconds: float = Field(1800, gt=0, description="How long the engine may take to start.")
    stall_seconds: float = Field(120, gt=0, description="Silence of an engine that counts as a hang.")
    max_restarts: int = Field(8, ge=0, description="Restarts in a row that finish no row, before the job fails.")
    state: str | None = Field(None, description="Folder of what is remembered between jobs; any fsspec URL.")
    drain_seconds: float = Field(20, ge=0, description="How long running requests may finish after a stop.")
    deadline: str | None = Field(
        None,
        description="When the run must be over: a time of day (`06:30`, the next one), a date with time, or a duration "
        "(`7h30m`). What is not done then is for the next run.",
    )
    max_cost_usd: float | None = Field(None, gt=0, description="Most dollars of one run; needs cost.usd_per_hour.")
    device_wait: str = Field(
        "12h",
        description="How long to wait for a GPU that another job holds, before this one is refused; `0s`: not at all.",
    )

    @field_validator("deadline", mode="before")
    @classmethod
    def _deadline_is_a_moment(cls, value: object) -> str | None:
        if value is None:
            return None
        text = value.isoformat() if isinstance(value, datetime) else str(value)  # YAML makes a datetime of a full one
        parse_deadline(text)
        return text

    @field_validator("device_wait")
    @classmethod
    def _device_wait_is_a_duration(cls, value: str) -> str:
        parse_duration(value, may_be_zero=True)
        return value


class ApiPriceSpec(Section):
    """Price of an API to compare with, in US dollars."""

    usd_per_1m_input_tokens: float = Field(ge=0)
    usd_per_1m_output_tokens: float = Field(ge=0)


class CostSpec(Section):
    """What the hardware costs."""

    usd_per_hour: float = Field(ge=0, description="Price in US dollars of one replica for one hour.")
    api: ApiPriceSpec | None = Field(None, description="What the same tokens would cost elsewhere, for comparison.")


class BaselineSpec(Section):
    """What may change from one run of this job to the next. A threshold that is not set is not looked at."""

    on_breach: Literal["warn", "partial"] = Field(
        "warn", description="Only say so, or end the run `partial` (exit code 3); results are complete all the same."
    )
    max_slowdown: float | None = Field(None, ge=0, description="Drop of total tokens/s, as a share: 0.2 is 20 %.")
    max_cost_increase: float | None = Field(None, ge=0, description="Rise of dollars per 1,000 rows, as a share.")
    max_error_increase: float | None = Field(None, ge=0, le=1, description="Rise of the share of failed rows.")
    max_truncated_increase: float | None = Field(None, ge=0, le=1, description="Rise of the share of cut answers.")
    max_empty_increase: float | None = Field(None, ge=0, le=1, description="Rise of the share of empty answers.")
    max_repetitive_increase: float | None = Field(
        None, ge=0, le=1, description="Rise of the share that repeats itself."
    )
    max_length_shift: float | None = Field(None, ge=0, description="Change of mean output tokens, as a share.")


class JobSpec(Section):
    """One batch-inference job: every row of a Parquet dataset gets one answer."""

    name: str = Field(min_length=1, description="Name of the job, for people.")
    input: InputSpec
    prompt: PromptSpec
    sampling: SamplingSpec
    model: ModelSpec | None = Field(None, description="May be left out with the echo engine.")
    engine: EngineSpec = Field(default_factory=lambda: EngineSpec())
    output: OutputSpec
    run: RunSpec = Field(default_factory=lambda: RunSpec())
    cost: CostSpec | None = None
    baseline: BaselineSpec = Field(default_factory=lambda: BaselineSpec())
    date: str | None = Field(
        None,
        description="The date that `{{ ds }}` and the other date variables of the paths stand for, such as 2026-11-28; "
        "`--date` sets it. Default: today.",
    )

    @field_validator("date", mode="before")
    @classmethod
    def _date_is_a_day(cls, value: object) -> str | None:
        if value is None:
            return None
        text = str(value)  # YAML makes a date of it
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            raise ValueError(f"found {text!r}; allowed: a date such as 2026-11-28") from None

    @model_validator(mode="after")
    def _model_for_vllm(self) -> JobSpec:
        if self.engine.kind == "vllm" and self.model is None:
            raise ValueError("model: missing; required with engine.kind vllm")
        return self

    @model_validator(mode="after")
    def _budget_has_a_price(self) -> JobSpec:
        if self.run.max_cost_usd is not None and self.cost is None:
            raise ValueError(
                f"run.max_cost_usd: found {self.run.max_cost_usd:g} without a price; allowed: together with "
                "cost.usd_per_hour"
            )
        return self
