"""Text to token ids: the model's own tokenizer and chat template, or a trivial one for the echo engine."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from batchjobs.errors import SpecError
from batchjobs.fingerprint import chat_template_text
from batchjobs.rows.tokenizers_only import transformers
from schemas.job import JobSpec


class Tokenizer(Protocol):
    """What rendering needs of a tokenizer."""

    def encode(self, texts: list[str], add_special_tokens: bool) -> list[list[int]]:
        """Token ids of each text, as plain integers."""

    def chat(self, messages: list[dict[str, str]]) -> str:
        """The messages rendered by the chat template, ready for the answer."""


def load_tokenizer(job: JobSpec, as_of: datetime) -> Tokenizer:
    """The tokenizer of the job's model; raises SpecError if it cannot be loaded or has no chat template."""
    if job.model is None:
        return ByteTokenizer()
    return ModelTokenizer(job, as_of)


class ByteTokenizer:
    """One token per UTF-8 byte; a chat is a line per message."""

    def encode(self, texts: list[str], add_special_tokens: bool) -> list[list[int]]:
        """The bytes of each text."""
        return [list(text.encode()) for text in texts]

    def chat(self, messages: list[dict[str, str]]) -> str:
        """`role: content`, a line each."""
        return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


class ModelTokenizer:
    """The tokenizer and chat template of a Hugging Face model, loaded without torch."""

    def __init__(self, job: JobSpec, as_of: datetime) -> None:
        assert job.model is not None
        name = job.model.tokenizer or job.model.name
        revision = job.model.tokenizer_revision or (job.model.revision if job.model.tokenizer is None else None)
        try:
            self._tokenizer = transformers().AutoTokenizer.from_pretrained(
                name, revision=revision, trust_remote_code=job.model.trust_remote_code
            )
        except Exception as error:  # transformers raises many types for "not there" and "not a tokenizer"
            raise SpecError(f"model.name: the tokenizer of {name} cannot be loaded: {error}") from error
        self._template = chat_template_text(job)
        # The frozen instant, so that a template which prints the date says the same after a resume past midnight.
        self._variables: dict[str, Any] = {"strftime_now": as_of.strftime, **job.prompt.chat_template_kwargs}
        if job.prompt.is_chat and self._template is None and not self._tokenizer.chat_template:
            raise SpecError(f"prompt: {name} has no chat template; give prompt.chat_template, or use prompt.template")

    def encode(self, texts: list[str], add_special_tokens: bool) -> list[list[int]]:
        """Token ids of each text; fast tokenizers work on the whole batch at once."""
        ids: list[list[int]] = self._tokenizer(texts, add_special_tokens=add_special_tokens)["input_ids"]
        return ids

    def chat(self, messages: list[dict[str, str]]) -> str:
        """The messages rendered by the chat template, ready for the answer."""
        text: str = self._tokenizer.apply_chat_template(
            messages, chat_template=self._template, tokenize=False, add_generation_prompt=True, **self._variables
        )
        return text
