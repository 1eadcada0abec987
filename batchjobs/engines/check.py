"""Checks what only vLLM knows, in a short-lived process: `python -m batchjobs.engines.check`, started by `preflight`.

Reads one JSON object on standard input and writes a JSON list of problems, each {key, found, allowed}, to standard
output. What vLLM itself prints goes to standard error.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

from schemas.job import ModelSpec
from schemas.request import REFUSED_SAMPLING, SamplingSpec

Problem = dict[str, str]

# Names that vLLM has and batchjobs cannot serve, each with the reason.
_REFUSED_ENGINE = {
    "skip_tokenizer_init": "answers are text, and stop strings need the tokenizer",
    "scheduling_policy": "rows have no priority; run.order decides",
    "runner": "a row's answer is generated text",
    "convert": "a row's answer is generated text",
}
_REFUSED_SAMPLING = REFUSED_SAMPLING | {
    "priority": "rows have no priority; run.order decides",
    "logprob_token_ids": "results have no column for them",
    "flat_logprobs": "results have no column for them",
    "prompt_logprob_token_ids": "results have no column for them",
    "prompt_logprob_start": "results have no column for them",
    "stream_interval": "answers are not streamed",
    "skip_clone": "batchjobs sets it",
    "output_text_buffer_length": "vLLM sets it",
}


def find_problems(question: dict[str, Any]) -> list[Problem]:
    """All problems with the arguments of `vllm.LLM` (`llm`), the sampling parameters of all rows (`sampling`, with its
    `structured_outputs`), and the names that rows may set (`names`)."""
    names = [f"sampling.per_row_column.{name}" for name in question["names"]]
    problems = [*_engine_problems(question["llm"]), *_sampling_name_problems(names)]
    sampling = _sampling_keys(question["sampling"])
    bad_names = list(_sampling_name_problems(sampling))
    if bad_names:
        return [*problems, *bad_names]
    return [*problems, *_sampling_value_problems(sampling, question["llm"])]


def _engine_problems(llm: dict[str, Any]) -> Iterator[Problem]:
    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs
    from vllm.reasoning import ReasoningParserManager

    types = {field.name: field.type for field in fields(EngineArgs)}
    known = types.keys() | (inspect.signature(LLM.__init__).parameters.keys() - {"self", "kwargs"})
    for name, value in llm.items():
        key = f"model.{name}" if name in ModelSpec.model_fields else f"engine.extra.{name}"
        if name not in known:
            yield _unknown(key, name, known, "an argument of vllm.LLM")
        elif name in _REFUSED_ENGINE:
            yield _problem(key, value, f"nothing: {_REFUSED_ENGINE[name]}")
        elif get_origin(types.get(name)) is Literal and value not in get_args(types[name]):
            yield _problem(key, value, ", ".join(map(str, get_args(types[name]))))
    if plugin := llm.get("reasoning_parser_plugin"):
        ReasoningParserManager.import_reasoning_parser(plugin)
    parser = llm.get("reasoning_parser")
    if parser is not None and parser not in ReasoningParserManager.list_registered():
        yield _problem("model.reasoning_parser", parser, ", ".join(ReasoningParserManager.list_registered()))


def _sampling_keys(sampling: dict[str, Any]) -> dict[str, Any]:
    """The values by the full name that they have in the spec."""
    return {f"sampling.{'' if n in SamplingSpec.model_fields else 'extra.'}{n}": value for n, value in sampling.items()}


def _name(key: str) -> str:
    return key.rpartition(".")[2]


def _sampling_name_problems(keys: Iterable[str]) -> Iterator[Problem]:
    from vllm import SamplingParams

    known = {name for name in SamplingParams.__struct_fields__ if not name.startswith("_")}
    for key in keys:
        if _name(key) in _REFUSED_SAMPLING:
            yield _problem(key, _name(key), f"nothing: {_REFUSED_SAMPLING[_name(key)]}")
        elif _name(key) not in known:
            yield _unknown(key, _name(key), known, "a parameter of vllm.SamplingParams")


def _sampling_value_problems(sampling: dict[str, Any], llm: dict[str, Any]) -> Iterator[Problem]:
    """Each value by itself, so that the message names its key, then all together."""
    from batchjobs.engines.vllm import sampling_params

    values = {_name(key): value for key, value in sampling.items()}
    max_tokens = values.pop("max_tokens")
    good = True
    for key, value in sampling.items():
        if key != "sampling.max_tokens":
            try:
                params = sampling_params({_name(key): value}, max_tokens)
                if params.structured_outputs is not None:
                    _validate_structured_outputs(params, llm)
            except Exception as error:  # vLLM raises many types
                good = False
                yield _problem(key, value, _sentence(error))
    if good:
        try:
            sampling_params(values, max_tokens)
        except Exception as error:
            yield _problem("sampling", values, _sentence(error))


def _validate_structured_outputs(params: Any, llm: dict[str, Any]) -> None:
    """Ask vLLM whether a backend accepts the schema, regular expression, choice or grammar; raises as vLLM does.

    vLLM wants a model and a tokenizer only to know their kind, so an empty tokenizer of the usual kind will do.
    """
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from vllm.config import StructuredOutputsConfig

    validate = getattr(params, "_validate_structured_outputs", None)
    if validate is None:  # private: another vLLM may not have it, and then each row is checked when it is fed
        return
    config = llm.get("structured_outputs_config") or {}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    validate(SimpleNamespace(is_diffusion=False), StructuredOutputsConfig(**config), tokenizer)


def _unknown(key: str, name: str, known: Iterable[str], what: str) -> Problem:
    close = difflib.get_close_matches(name, known, n=1)
    return _problem(key, name, what + (f"; did you mean {close[0]}?" if close else ""))


def _problem(key: str, found: Any, allowed: str) -> Problem:
    text = found if isinstance(found, str) else json.dumps(found, default=str)
    return {"key": key, "found": text if len(text) <= 200 else text[:200] + "…", "allowed": allowed}


def _sentence(error: Exception) -> str:
    return f"what vLLM accepts; it says: {' '.join(str(error).split())[:500] or type(error).__name__}"


def main() -> None:
    """Answer the question on standard input."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # vLLM logs to standard output
    json.dump(find_problems(json.load(sys.stdin)), answer)
    answer.close()


if __name__ == "__main__":
    main()
