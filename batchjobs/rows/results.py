"""How a row ended, as the result columns say it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from batchjobs.engines.base import Completion, Request
from batchjobs.rows.prompts import RowError
from batchjobs.rows.sampling import wants_json
from schemas.records import GOOD_FINISH_REASONS, RESULT_FIELDS, ErrorCode, Status, WarningCode


@dataclass(slots=True)
class Result:
    """One output row, without the kept columns: first the fields of RESULT_FIELDS, in their order."""

    row: int
    output: str | None = None
    reasoning: str | None = None
    status: str = Status.OK
    finish_reason: str | None = None
    warning: str | None = None
    error_code: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    queue_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    attempt: int = 0
    request_hash: str | None = None
    copied: bool = False  # of an identical request; not stored: in a part, it is a good answer without times


def of_stored(values: Iterable[Any]) -> Result:
    """The result whose columns are `values`."""
    result = Result(*values)
    result.copied = result.finish_reason in GOOD_FINISH_REASONS and result.ttft_s is None
    return result


def of_copy(result: Result, row: int) -> Result:
    """The same result for another row with an identical request: its own times are unknown, for it never ran."""
    return replace(result, row=row, queue_s=None, ttft_s=None, tpot_s=None, copied=True)


def of_error(problem: RowError, attempt: int) -> Result:
    """The result of a row that was never run."""
    return Result(
        row=problem.row,
        status=Status.ERROR,
        error_code=problem.code,
        error=problem.message,
        prompt_tokens=problem.prompt_tokens,
        attempt=attempt,
        request_hash=problem.request_hash,
    )


def of_completion(done: Completion, request: Request, max_model_len: int, attempt: int) -> Result:
    """The result of a request that the engine finished."""
    result = Result(
        row=done.row,
        output=done.text,
        reasoning=done.reasoning,
        finish_reason=done.finish_reason,
        prompt_tokens=len(request.token_ids),
        output_tokens=done.output_tokens,
        cached_tokens=done.cached_tokens,
        queue_s=done.queue_s,
        ttft_s=done.ttft_s,
        tpot_s=done.tpot_s,
        attempt=attempt,
        request_hash=request.request_hash,
    )
    problem = _problem(done, request)
    if problem is not None:
        result.status, (result.error_code, result.error) = Status.ERROR, problem
    if done.finish_reason == "length":
        context_full = len(request.token_ids) + done.output_tokens >= max_model_len
        cut_by_context = context_full and done.output_tokens < request.max_tokens
        result.warning = WarningCode.CONTEXT if cut_by_context else WarningCode.MAX_TOKENS
    return result


def _problem(done: Completion, request: Request) -> tuple[ErrorCode, str] | None:
    if done.finish_reason not in GOOD_FINISH_REASONS:
        code = ErrorCode.ENGINE_ABORT if done.finish_reason == "abort" else ErrorCode.ENGINE_ERROR
        return code, done.error or f"the engine ended the request with finish reason {done.finish_reason}"
    if wants_json(request.sampling):
        try:
            json.loads(done.text or "", parse_int=str, parse_constant=_no_json)
        except (ValueError, RecursionError) as error:
            return ErrorCode.INVALID_OUTPUT, f"the answer is not valid JSON: {error}"
    return None


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def result_batch(results: list[Result], prefix: str) -> pa.RecordBatch:
    """The result columns of some rows, in their order."""
    columns = [_array([getattr(r, f.name) for r in results], f.type) for f in RESULT_FIELDS]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([f.with_name(prefix + f.name) for f in RESULT_FIELDS]))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half of a surrogate pair, cut by max_tokens, has no UTF-8
        return pa.array([v if v is None else v.encode("utf-8", "replace").decode() for v in values], kind)


@dataclass(slots=True)
class Tally:
    """Counts over rows, for commit records and progress."""

    ok: int = 0
    rejected: int = 0
    deduplicated: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    saved_prompt_tokens: int = 0  # of copies
    saved_output_tokens: int = 0  # of copies

    def add(self, result: Result, reached_engine: bool) -> None:
        """Count one row. Tokens count only where the engine worked; what a copy has, it saved."""
        if result.error_code is None:
            self.ok += 1
        else:
            self.errors[result.error_code] = self.errors.get(result.error_code, 0) + 1
        if result.warning is not None:
            self.warnings[result.warning] = self.warnings.get(result.warning, 0) + 1
        if result.copied:
            self.deduplicated += 1
            self.saved_prompt_tokens += result.prompt_tokens or 0
            self.saved_output_tokens += result.output_tokens or 0
        elif reached_engine:
            self.prompt_tokens += result.prompt_tokens or 0
            self.output_tokens += result.output_tokens or 0
            self.cached_tokens += result.cached_tokens or 0
        else:
            self.rejected += 1

    @property
    def rows(self) -> int:
        """All rows counted."""
        return self.ok + sum(self.errors.values())

    @property
    def generated(self) -> int:
        """Those that the engine ran."""
        return self.rows - self.rejected - self.deduplicated
