"""Rows to requests: read the columns, render, tokenise, check. Every problem is the row's own."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from batchjobs.data.columns import UnreadableValue, is_list, is_messages, is_text, python_rows, require_column
from batchjobs.engines.base import Request
from batchjobs.errors import ContextTooShort, EngineFailed, SpecError
from batchjobs.rows.sampling import BadSampling, RowSampling, canonical
from batchjobs.rows.templates import NullValue, RowTemplate, names_in
from batchjobs.rows.tokens import Tokenizer
from schemas.job import JobSpec
from schemas.records import ErrorCode
from schemas.request import PromptSpec


@dataclass(slots=True)
class RowError:
    """A row that has no request, and why."""

    row: int
    code: ErrorCode
    message: str
    prompt_tokens: int | None = None
    request_hash: str | None = None


class RowProblem(Exception):
    """Raised while one row is turned into a request."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def may_use(prompt: PromptSpec) -> Callable[[str], bool]:
    """Whether a prompt uses a column of this name, judged before the dataset's columns are known."""
    plain = {prompt.column, prompt.messages_column, prompt.token_ids_column} - {None}
    named = set[str]().union(*(names_in(text) for text in (prompt.system, prompt.user, prompt.template) if text))
    return lambda name: name in plain or name in named or "row" in named


Prompt = str | list[int]
_PromptOf = Callable[[dict[str, Any]], Prompt]


class Renderer:
    """Turns batches of rows into requests."""

    def __init__(self, job: JobSpec, schema: pa.Schema, as_of: datetime, keep_text: bool = False) -> None:
        """Raises SpecError when the prompt or the per-row sampling does not fit the dataset's columns."""
        self.columns: list[str] = []
        self._job = job
        self._keep_text = keep_text
        self._sampling = RowSampling(job.sampling)
        self._sampling_column = job.sampling.per_row_column
        self._prompt_of = self._source(schema, as_of)
        if self._sampling_column is not None and self._sampling_column not in self.columns:
            self.columns.append(self._sampling_column)

    def connect(
        self,
        tokenizer: Tokenizer,
        max_model_len: int,
        vocab_size: int,
        model_id: str,
        own_max_len: int | None = None,
        lowered: bool = False,
    ) -> None:
        """Give what only the running engine and its tokenizer know; needed before `requests`.

        `own_max_len`: the context that the job's rows may use, where the engine's was chosen shorter: by a remedy
        (`lowered`) or by `max_model_len: auto`. No row may feel that: one that needs more ends this life.
        """
        self._lowered, self._own_max_len = lowered, own_max_len or max_model_len
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._model_id = model_id.encode()
        self._default_bytes = canonical(self._sampling.default)

    def requests(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[Request | RowError]:
        """One request or error for each row of the batch, in its order; `rows` are their numbers in the dataset."""
        values = python_rows(batch, self.columns)
        prompts = [self._prompt(row, value) for row, value in zip(rows, values, strict=True)]
        ids = self._tokenise(prompts)
        return [self._request(row, v, p, i) for row, v, p, i in zip(rows, values, prompts, ids, strict=True)]

    def _prompt(self, row: int, values: dict[str, Any] | UnreadableValue) -> Prompt | RowError:
        if isinstance(values, UnreadableValue):
            return RowError(row, ErrorCode.BAD_VALUE, str(values))
        try:
            prompt = self._prompt_of(values)
            if not (prompt.strip() if isinstance(prompt, str) else prompt):
                raise RowProblem(ErrorCode.EMPTY_PROMPT, "the prompt is empty or only white space")
            return prompt
        except RowProblem as problem:
            return RowError(row, problem.code, str(problem))
        except NullValue as problem:
            return RowError(row, ErrorCode.NULL_PROMPT, str(problem))
        except Exception as problem:  # a template can raise anything; it is this row's problem only
            return RowError(row, ErrorCode.TEMPLATE_ERROR, f"{type(problem).__name__}: {problem}")

    def _tokenise(self, prompts: list[Prompt | RowError]) -> list[list[int] | Exception | None]:
        ids: list[list[int] | Exception | None] = [p if isinstance(p, list) else None for p in prompts]
        where = [i for i, prompt in enumerate(prompts) if isinstance(prompt, str)]
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        special = not self._job.prompt.is_chat  # a chat template writes its own
        try:
            found: list[Any] = self._tokenizer.encode(texts, special) if texts else []
        except Exception:  # one text spoils the batch: find out which
            found = [self._encode_one(text, special) for text in texts]
        for i, tokens in zip(where, found, strict=True):
            ids[i] = tokens
        return ids

    def _encode_one(self, text: str, special: bool) -> list[int] | Exception:
        try:
            return self._tokenizer.encode([text], special)[0]
        except Exception as error:
            return error

    def _request(self, row: int, values: Any, prompt: Prompt | RowError, ids: Any) -> Request | RowError:
        if isinstance(prompt, RowError):
            return prompt
        if isinstance(ids, Exception):
            return RowError(row, ErrorCode.TEMPLATE_ERROR, f"the text cannot be tokenised: {ids}")
        try:
            sampling = (
                self._sampling.of(values[self._sampling_column]) if self._sampling_column else self._sampling.default
            )
        except BadSampling as problem:
            return RowError(row, ErrorCode.BAD_SAMPLING, str(problem), len(ids))
        if isinstance(prompt, list) and max(ids) >= self._vocab_size:
            message = f"token id {max(ids)} is outside the vocabulary of {self._vocab_size}"
            return RowError(row, ErrorCode.BAD_TOKEN_IDS, message, len(ids))
        request_hash = self._hash(ids, sampling)
        if not ids:
            return RowError(row, ErrorCode.EMPTY_PROMPT, "the prompt has no tokens", 0, request_hash)
        if len(ids) >= self._own_max_len:
            message = f"the prompt has {len(ids)} tokens; max_model_len is {self._own_max_len}, one is for the answer"
            return RowError(row, ErrorCode.PROMPT_TOO_LONG, message, len(ids), request_hash)
        needed = min(len(ids) + sampling["max_tokens"], self._own_max_len)
        if needed > self._max_model_len:
            raise self._too_short(row, needed)
        text = prompt if self._keep_text and isinstance(prompt, str) else None
        return Request(row, ids, sampling["max_tokens"], sampling, request_hash, text)

    def _too_short(self, row: int, needed: int) -> ContextTooShort | EngineFailed:
        if not self._lowered:
            return ContextTooShort(row, needed, self._max_model_len)
        return EngineFailed(
            f"row {row} may need {needed} tokens of context, but the KV cache has room for a max_model_len of "
            f"{self._max_model_len} only; give it more memory, or set model.max_model_len"
        )

    def _hash(self, ids: list[int], sampling: dict[str, Any]) -> str:
        """SHA-256 over model, token ids (8 bytes each) and effective sampling."""
        digest = hashlib.sha256(self._model_id)
        digest.update(array("q", ids).tobytes())
        digest.update(self._default_bytes if sampling is self._sampling.default else canonical(sampling))
        return digest.hexdigest()

    def _source(self, schema: pa.Schema, as_of: datetime) -> _PromptOf:
        prompt = self._job.prompt
        for key, fits, wanted, made in (
            ("column", is_text, "text", _not_null),
            ("token_ids_column", is_list, "a list", _token_ids),
            ("messages_column", is_messages, "list<struct<role, content>>", self._chat_of),
        ):
            name: str | None = getattr(prompt, key)
            if name is not None:
                self.columns.append(require_column(schema, f"prompt.{key}", name, fits, wanted))
                return partial(_one_column, name, made)
        return self._templates(schema, as_of)

    def _chat_of(self, value: Any) -> str:
        return self._tokenizer.chat(_messages(value))

    def _templates(self, schema: pa.Schema, as_of: datetime) -> _PromptOf:
        prompt = self._job.prompt
        texts = {"system": prompt.system, "user": prompt.user, "template": prompt.template}
        made = {k: RowTemplate(t, f"prompt.{k}", schema.names, as_of) for k, t in texts.items() if t is not None}
        self.columns.extend(dict.fromkeys(name for template in made.values() for name in template.columns))
        if not self.columns:
            raise SpecError(
                f"prompt.{' and prompt.'.join(made)}: found no column, so every row would get the same answer; "
                f"allowed: a template that uses one of {', '.join(schema.names)}"
            )
        if "template" in made:
            return made["template"].render
        return partial(self._chat, made)

    def _chat(self, made: dict[str, RowTemplate], values: dict[str, Any]) -> str:
        messages = [{"role": role, "content": template.render(values)} for role, template in made.items()]
        if not messages[-1]["content"].strip():
            raise RowProblem(ErrorCode.EMPTY_PROMPT, "the user message is empty or only white space")
        return self._tokenizer.chat(messages)


def _one_column(name: str, made: Callable[[Any], Prompt], values: dict[str, Any]) -> Prompt:
    return made(values[name])


def _not_null(value: Any) -> Any:
    if value is None:
        raise RowProblem(ErrorCode.NULL_PROMPT, "the prompt column is null")
    return value


def _token_ids(value: Any) -> list[int]:
    ids: list[Any] = _not_null(value)
    for i in ids:
        if type(i) is not int:
            raise RowProblem(ErrorCode.BAD_TOKEN_IDS, f"found {i!r}; token ids are integers")
        if i < 0:
            raise RowProblem(ErrorCode.BAD_TOKEN_IDS, f"found the negative token id {i}")
    return ids


def _messages(value: Any) -> list[dict[str, str]]:
    messages = _not_null(value)
    if not messages:
        raise RowProblem(ErrorCode.BAD_MESSAGES, "the list of messages is empty")
    for i, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message, dict) or not isinstance(message.get(key), str):
                raise RowProblem(ErrorCode.BAD_MESSAGES, f"message {i} has no {key}")
    if not any(message["content"].strip() for message in messages):
        raise RowProblem(ErrorCode.EMPTY_PROMPT, "every message is empty or only white space")
    return [{k: v for k, v in message.items() if v is not None} for message in messages]
