"""The result columns and what they may say. The Arrow types are the same in every part, whatever happened."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class Status(StrEnum):
    """Outcome of a row."""

    OK = "ok"
    ERROR = "error"


class ErrorCode(StrEnum):
    """Why a row has no good answer. One row's error never touches another row."""

    NULL_PROMPT = "null_prompt"  # the prompt column, or a value printed by the template, is null
    EMPTY_PROMPT = "empty_prompt"  # empty or only white space
    PROMPT_TOO_LONG = "prompt_too_long"  # max_model_len tokens or more
    TEMPLATE_ERROR = "template_error"  # the template or chat template raised
    BAD_MESSAGES = "bad_messages"  # chat messages without role or content
    BAD_TOKEN_IDS = "bad_token_ids"  # not integers, negative, or outside the vocabulary
    BAD_SAMPLING = "bad_sampling"  # the row's own sampling values are not allowed
    BAD_VALUE = "bad_value"  # a value that cannot be read, such as text that is not UTF-8
    ENGINE_REJECTED = "engine_rejected"  # the engine refused this one request
    ENGINE_ABORT = "engine_abort"  # finish reason `abort`
    ENGINE_ERROR = "engine_error"  # finish reason `error`
    ENGINE_CRASH = "engine_crash"  # quarantined: the engine died twice with this row alone
    INVALID_OUTPUT = "invalid_output"  # a JSON schema was asked for and the answer does not parse


class WarningCode(StrEnum):
    """A good answer that was cut: by `max_tokens`, or by the end of the context."""

    MAX_TOKENS = "max_tokens"
    CONTEXT = "context"


GOOD_FINISH_REASONS = frozenset({"stop", "length", "repetition"})

RESULT_FIELDS: tuple[pa.Field, ...] = (
    pa.field("row", pa.int64(), nullable=False),  # 0-based position in the dataset, before the filter
    pa.field("output", pa.string()),
    pa.field("reasoning", pa.string()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("finish_reason", pa.string()),
    pa.field("warning", pa.string()),
    pa.field("error_code", pa.string()),
    pa.field("error", pa.string()),
    pa.field("prompt_tokens", pa.int32()),
    pa.field("output_tokens", pa.int32()),
    pa.field("cached_tokens", pa.int32()),
    pa.field("queue_s", pa.float32()),  # seconds
    pa.field("ttft_s", pa.float32()),  # seconds
    pa.field("tpot_s", pa.float32()),  # seconds
    pa.field("attempt", pa.int16(), nullable=False),
    pa.field("request_hash", pa.string()),
)

RESULT_COLUMNS = tuple(field.name for field in RESULT_FIELDS)


def result_schema(kept: pa.Schema, prefix: str) -> pa.Schema:
    """Schema of every part: the kept columns, then the result columns with `prefix` before their names."""
    return pa.schema([*kept, *(field.with_name(prefix + field.name) for field in RESULT_FIELDS)])
