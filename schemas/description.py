"""What a job would do, before it does anything: `batchjobs plan --json`.

What cannot be known is null, and `unknown` says why, by the key that is null (`capacity.weights_bytes`).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from schemas.figures import Distribution, Estimate, Interval
from schemas.summary import Decision


class Example(BaseModel):
    """A row that shows a problem."""

    row: int
    problem: str  # null, empty, duplicate, too_long, or another error code of results
    text: str  # a sentence


class Problems(BaseModel):
    """Rows that will fail or repeat, among `looked_at` rows (all of them with `--full`)."""

    looked_at: int = 0
    filtered: int = 0  # of these, removed by the filter
    null: int = 0
    empty: int = 0
    duplicate: int = 0  # identical requests beyond the first
    too_long: int = 0
    other: dict[str, int] = {}  # by error code
    duplicate_ids: int | None = None  # of `input.id_column`; null unless all rows were looked at
    examples: list[Example] = []


class Totals(BaseModel):
    """Tokens of the whole dataset."""

    prompt_tokens: Interval | None = None  # 95 % interval
    output_tokens: Interval | None = None  # from earlier runs' answers, else 0 to rows x max_tokens
    method: str = ""  # a sentence: how they were found


class Alternative(BaseModel):
    """What another precision or more devices would change."""

    change: str  # "now", "kv_cache_dtype: fp8", "quantization: fp8", "tensor_parallel_size: 2"
    weights_bytes: int | None  # of one device
    kv_bytes_per_token: int | None  # of one device
    kv_cache_tokens: int | None
    max_concurrent_sequences: int | None  # at P95 of prompt and expected output
    fits: bool | None


class CapacityDescription(BaseModel):
    """What one engine of the job holds on its device."""

    device: str | None = None
    device_memory_bytes: int | None = None
    weights_bytes: int | None = None  # of one device
    kv_bytes_per_token: int | None = None  # of one device
    kv_cache_tokens: int | None = None
    max_concurrent_sequences: int | None = None  # at P95 of prompt and expected output
    recommended: dict[str, Decision] = {}  # max_num_seqs, max_model_len, gpu_memory_utilization, ...
    advice: str | None = None  # whether quantising or tensor parallel is needed
    alternatives: list[Alternative] = []
    how: str = ""  # a sentence: where kv_cache_tokens comes from


class Description(BaseModel):
    """What a job would do."""

    job: str
    output: str
    rows: int  # before the filter
    files: int
    shards: int
    input_columns: list[str]
    result_columns: list[str]
    prompt_tokens: Distribution  # of the rows that were looked at and can be generated
    output_tokens: Distribution | None = None  # expected, from earlier runs; null if there was none
    shared_prefix: float | None = None  # share of prompt tokens, of the rows looked at, that a prefix cache could spare
    problems: Problems
    totals: Totals
    capacity: CapacityDescription
    estimate: Estimate
    sizing: dict[str, Decision] = {}
    unknown: dict[str, str] = {}

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return self.model_dump(mode="json")
