"""The sections of the job spec that say how a row becomes a request: its prompt, and how its answer is sampled.

`null` (or a missing key) in `sampling` means "vLLM's own default".
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from schemas.section import Section


class PromptSpec(Section):
    """How a row becomes a prompt. Exactly one of user, template, column, messages_column, token_ids_column."""

    system: str | None = Field(None, description="System message (Jinja over the row's columns); goes with `user`.")
    user: str | None = Field(None, description="User message (Jinja over the row's columns), rendered as a chat.")
    template: str | None = Field(None, description="The whole prompt (Jinja over the row's columns), without a chat.")
    column: str | None = Field(None, description="Text column that is the whole prompt, without a chat template.")
    messages_column: str | None = Field(None, description="Column of chat messages: `list<struct<role, content>>`.")
    token_ids_column: str | None = Field(None, description="Column of token ids: `list<int>`.")
    chat_template: str | None = Field(None, description="Chat template, as text or a file; default the model's own.")
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Extra variables of the chat template, e.g. enable_thinking: false."
    )

    @model_validator(mode="after")
    def _one_source(self) -> PromptSpec:
        given = [name for name in PROMPT_SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"found {' and '.join(given) or 'none'}; allowed: exactly one of {', '.join(PROMPT_SOURCES)}"
            )
        if self.system is not None and self.user is None:
            raise ValueError(f"found system with {given[0]}; allowed: system only together with user")
        if not self.is_chat and (self.chat_template or self.chat_template_kwargs):
            raise ValueError(f"found chat_template with {given[0]}; allowed: only with user or messages_column")
        return self

    @property
    def is_chat(self) -> bool:
        """Whether the model's chat template renders the prompt."""
        return self.user is not None or self.messages_column is not None


PROMPT_SOURCES = ("user", "template", "column", "messages_column", "token_ids_column")


class StructuredOutputsSpec(Section):
    """Constrain the answer (vLLM's StructuredOutputsParams). Exactly one of json, regex, choice, grammar."""

    json_schema: dict[str, Any] | str | None = Field(None, alias="json", description="JSON Schema, as mapping or text.")
    regex: str | None = Field(None, description="Regular expression that the whole answer matches.")
    choice: list[str] | None = Field(None, min_length=1, description="The answer is one of these strings.")
    grammar: str | None = Field(None, description="Context-free grammar (EBNF).")

    @model_validator(mode="after")
    def _one_constraint(self) -> StructuredOutputsSpec:
        given = [
            name for name in ("json", "regex", "choice", "grammar") if getattr(self, _python_name(name)) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"found {' and '.join(given) or 'none'}; allowed: exactly one of json, regex, choice, grammar"
            )
        return self


def _python_name(key: str) -> str:
    return "json_schema" if key == "json" else key


class SamplingSpec(Section):
    """Sampling parameters, named and meant as vLLM's SamplingParams. One answer per row."""

    max_tokens: int = Field(ge=1, description="Most output tokens of one row (required: it bounds the cost).")
    temperature: float | None = Field(None, ge=0, le=2, description="0 is greedy. vLLM's default is 1.")
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=2)
    seed: int | None = None
    min_tokens: int | None = Field(None, ge=0)
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    logit_bias: dict[int, float] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    structured_outputs: StructuredOutputsSpec | None = Field(None, description="json, regex, choice or grammar.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Any other parameter of vllm.SamplingParams.")
    per_row_column: str | None = Field(None, description="Struct column that overrides these per row; null keeps them.")
    from_model: bool = Field(False, description="Start from the sampling values of the model's generation_config.")

    @model_validator(mode="after")
    def _one_answer(self) -> SamplingSpec:
        for name in REFUSED_SAMPLING:
            if name in self.extra:
                raise ValueError(f"extra.{name}: found {self.extra[name]!r}; not allowed: {REFUSED_SAMPLING[name]}")
        for name in self.extra:
            if name in type(self).model_fields:
                raise ValueError(f"extra.{name}: is a key of sampling itself; allowed: sampling.{name}")
        return self


REFUSED_SAMPLING = {
    "n": "a row has one answer",
    "logprobs": "results have no column for them",
    "prompt_logprobs": "results have no column for them",
    "output_kind": "batchjobs sets it",
    "detokenize": "batchjobs sets it",
}
