"""vLLM's offline `LLM`, fed one request at a time (`add_request`, `step`), so that it never drains between shards.

Runs only in a replica's process. `LLM.generate` is not used: it loses a whole call for one bad row and returns nothing
until its last row has ended.
"""

from __future__ import annotations

import threading
from typing import Any

import vllm
from vllm import LLM, SamplingParams
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.inputs import tokens_input
from vllm.parser.parser_manager import ParserManager
from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from batchjobs.engines.base import (
    Completion,
    EngineInfo,
    EngineStats,
    Outcome,
    Request,
    RequestRejected,
    Working,
)
from batchjobs.engines.one_call import SignsOfLife, submit_and_step
from batchjobs.engines.vllm_stats import StatRecorder
from schemas.job import JobSpec

_ENGINE_ARGUMENTS = {
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "enforce_eager",
    "enable_prefix_caching",
}
_BAD_ENDS = {
    "abort": "The engine aborted the request before its answer was complete.",
    "error": "The engine ended the request with an error; the log of the attempt says why.",
}
_NESTED = {"structured_outputs": StructuredOutputsParams, "repetition_detection": RepetitionDetectionParams}
_CACHED_SAMPLINGS = 10_000


def llm_arguments(spec: JobSpec) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM` for a spec; what is not set is left to vLLM.

    So is an `auto` that `sizing.py` has not decided.
    """
    assert spec.model is not None
    model = spec.model.model_dump(exclude_defaults=True, exclude={"name"})
    if spec.model.max_model_len == "auto":
        del model["max_model_len"]
    engine = spec.engine.model_dump(exclude_defaults=True, include=_ENGINE_ARGUMENTS)
    return {"model": spec.model.name, **model, **engine, **spec.engine.extra, "disable_log_stats": False}


def sampling_params(values: dict[str, Any], max_tokens: int) -> SamplingParams:
    """Make vLLM's sampling parameters from `values` by name; raises whatever vLLM raises for a bad name or value.

    They are also encoded and decoded here as for EngineCore: a value of a wrong type, such as text for `ignore_eos`, is
    found only there, and ends the thread that reads requests, so that every later row waits for ever.
    """
    values = dict(values)
    for name, kind in _NESTED.items():
        if isinstance(values.get(name), dict):
            values[name] = kind(**values[name])
    if isinstance(values.get("logit_bias"), dict):  # keys of JSON objects are strings
        values["logit_bias"] = {int(token): bias for token, bias in values["logit_bias"].items()}
    own = {"max_tokens": max_tokens, "output_kind": RequestOutputKind.FINAL_ONLY}
    # skip_clone: one object serves many requests; vLLM then copies it shallowly, which saves about 0.2 ms a request.
    params = SamplingParams(**{**values, **own, "skip_clone": True})
    if params.seed is not None and not -(2**63) <= params.seed < 2**63:  # the GPU sampler keeps seeds as int64
        raise ValueError(f"seed: found {params.seed}; allowed: integers of 64 bits")
    MsgpackDecoder(SamplingParams).decode(MsgpackEncoder().encode(params))
    return params


class VllmEngine:
    """One vLLM engine (parent, EngineCore, workers); see `batchjobs.engines.base.Engine`."""

    def __init__(self, spec: JobSpec) -> None:
        """Start the engine; raises what vLLM raises, whose cause is often only in this process's stderr."""
        self.llm = LLM(**llm_arguments(spec))
        self._engine = self.llm.llm_engine
        self._reasoning = _Reasoning(self.llm, spec) if spec.model and spec.model.reasoning_parser else None
        self._defaults: dict[str, Any] = dict(self._reasoning.sampling) if self._reasoning else {}
        if spec.sampling.from_model:
            self._defaults |= self.llm.model_config.get_diff_sampling_param()
        self._samplings: dict[str, SamplingParams] = {}
        self._verifies = spec.run.feed == "generate"  # which drops a whole call for one bad request
        self._recorder = StatRecorder(self.llm)
        self.info = _info(self._engine.vllm_config)
        threading.Thread(target=_wake_when_dead, args=(self._engine.engine_core,), daemon=True).start()

    def submit(self, request: Request) -> None:
        """See Engine. Any exception costs this one request, unless EngineCore is dead."""
        key = str(request.row)
        try:
            self._check_token_ids(request.token_ids)
            params = self._sampling(request)
            self._engine.add_request(key, tokens_input(request.token_ids), params)
        except EngineDeadError:
            raise
        except Exception as error:  # vLLM has many types, and may have registered the request before it raised
            self._engine.abort_request([key])
            raise RequestRejected(_one_line(error)) from error
        _keep_validated(params)

    def _check_token_ids(self, token_ids: list[int]) -> None:
        """Refuse what vLLM lets pass: other types stop EngineCore for good, an id too large kills it on a GPU."""
        if set(map(type, token_ids)) - {int}:
            raise TypeError("Token ids must be Python integers.")
        if token_ids and max(token_ids) >= self.info.vocab_size:
            raise ValueError(f"Token id {max(token_ids)} is outside the model's vocabulary of {self.info.vocab_size}.")

    def _sampling(self, request: Request) -> SamplingParams:
        key = f"{request.max_tokens} {request.sampling!r}"
        if key not in self._samplings:
            if len(self._samplings) >= _CACHED_SAMPLINGS:  # a seed per row must not fill the memory
                self._samplings.clear()
            params = sampling_params({**self._defaults, **request.sampling}, request.max_tokens)
            if self._verifies:
                self._verify(params)
            self._samplings[key] = params
        return self._samplings[key]

    def _verify(self, params: SamplingParams) -> None:
        """Raise what `add_request` would raise for these parameters."""
        tasks = self._engine.get_supported_tasks()
        self._engine.input_processor.process_inputs("", tokens_input([0]), params, supported_tasks=tasks)
        _keep_validated(params)

    def generate(self, requests: list[Request], working: Working) -> list[Outcome]:
        """See Engine. One `LLM.generate` of the requests that pass the checks."""
        refused = {request.row: problem for request in requests if (problem := self._problem(request)) is not None}
        good = [request for request in requests if request.row not in refused]
        outputs = self._generated(good, working)
        if outputs is None:
            return submit_and_step(self, requests, working)
        done = {request.row: self._completion(output) for request, output in zip(good, outputs, strict=True)}
        for row, completion in done.items():
            completion.row = row  # vLLM has numbered the requests itself
        return [refused.get(request.row) or done[request.row] for request in requests]

    def _generated(self, requests: list[Request], working: Working) -> list[Any] | None:
        """What `LLM.generate` returns; None if it refused one of them after all, and so ran none."""
        signs = SignsOfLife(len(requests), working)
        prompts, params = [tokens_input(r.token_ids) for r in requests], [self._sampling(r) for r in requests]
        self._recorder.on_step = signs.stepped  # a progress bar hears of answers only, and a long one takes its time
        first = next(self.llm.request_counter)
        try:
            return list(self.llm.generate(prompts, params, use_tqdm=signs))
        except Exception as error:
            if signs.stepping or isinstance(error, EngineDeadError):
                raise
            # vLLM has aborted those before the bad one, which may itself be registered.
            self._engine.abort_request([str(n) for n in range(first, next(self.llm.request_counter))])
            return None
        finally:
            self._recorder.on_step = None

    def _problem(self, request: Request) -> RequestRejected | None:
        """Why vLLM would refuse the request, found without giving it to the engine."""
        try:
            self._check_token_ids(request.token_ids)
            self._sampling(request)
        except Exception as error:
            return RequestRejected(_one_line(error))
        return None

    def unfinished(self) -> int:
        """See Engine."""
        return int(self._engine.get_num_unfinished_requests())

    def step(self) -> list[Completion]:
        """See Engine. Raises EngineDeadError if EngineCore or a worker died."""
        return [self._completion(output) for output in self._engine.step() if output.finished]

    def _completion(self, output: Any) -> Completion:
        answer = output.outputs[0]
        done = Completion(
            row=int(output.request_id),
            finish_reason=answer.finish_reason,
            text=answer.text,
            output_tokens=len(answer.token_ids),
            error=_BAD_ENDS.get(answer.finish_reason),
        )
        if output.metrics is not None and output.metrics.num_generation_tokens:  # else times are 0.0, not unknown
            done.cached_tokens = output.num_cached_tokens
            _set_times(done, output.metrics)
        if self._reasoning is not None:
            self._reasoning.split(done, answer.token_ids)
        return done

    def stats(self) -> EngineStats:
        """See Engine."""
        return self._recorder.stats()

    def close(self) -> None:
        """See Engine. Ends EngineCore and its workers: SIGTERM, and SIGKILL after 5 seconds."""
        self._engine.engine_core.shutdown()


def _info(config: Any) -> EngineInfo:
    return EngineInfo(
        kind="vllm",
        version=vllm.__version__,
        max_model_len=config.model_config.max_model_len,
        max_num_seqs=config.scheduler_config.max_num_seqs,
        vocab_size=config.model_config.get_vocab_size(),
        max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
        kv_cache_tokens=config.cache_config.kv_cache_size_tokens,
        model_max_len=config.model_config.get_and_verify_max_len(None),
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _keep_validated(params: SamplingParams) -> None:
    """Once it was not refused, vLLM need not parse a schema again for each request that has it (about 1 ms each).

    What it found out is kept in the object.
    """
    if params.structured_outputs is not None:
        vars(params)["_validate_structured_outputs"] = _already_validated


def _already_validated(*_: object) -> None:
    """Stands in for `SamplingParams._validate_structured_outputs`."""


def _set_times(done: Completion, times: Any) -> None:
    """Seconds on EngineCore's clock, by the formulas of vLLM's `IterationStats.update_from_finished_request`."""
    done.queue_s = times.scheduled_ts - times.queued_ts
    done.ttft_s = times.first_token_ts - times.queued_ts
    if times.num_generation_tokens > 1:
        done.tpot_s = (times.last_token_ts - times.first_token_ts) / (times.num_generation_tokens - 1)


def _wake_when_dead(client: Any) -> None:
    """Make a blocked `step` raise when no output can come any more.

    If EngineCore is killed, vLLM's client notes it and stops its output thread, but whoever waits for output waits
    for ever. Private API: without it (or with the engine in this process) there is nothing to watch.
    """
    try:
        while client.output_queue_thread.is_alive() and not client.resources.engine_dead:
            client.output_queue_thread.join(1)
        client.outputs_queue.put(EngineDeadError())
    except AttributeError:
        return


class _Reasoning:
    """Splits finished text as vLLM's server does: with a new parser for each answer."""

    def __init__(self, llm: LLM, spec: JobSpec) -> None:
        assert spec.model is not None
        self._tokenizer = llm.get_tokenizer()
        self._parser = ParserManager.get_parser(
            reasoning_parser_name=spec.model.reasoning_parser,
            is_harmony=llm.model_config.hf_config.model_type == "gpt_oss",
            tokenizer=self._tokenizer,
        )
        kwargs = {"chat_template_kwargs": spec.prompt.chat_template_kwargs}
        self._kwargs = {"model_config": llm.model_config, **kwargs}
        self._request = ChatCompletionRequest(messages=[], **kwargs)
        adjusted = self._new_parser().adjust_request(self._request.model_copy())
        names = ("skip_special_tokens", "spaces_between_special_tokens")  # some parsers need to see special tokens
        self.sampling = {name: False for name in names if not getattr(adjusted, name)}

    def _new_parser(self) -> Any:
        return self._parser(self._tokenizer, **self._kwargs)

    def split(self, done: Completion, token_ids: list[int]) -> None:
        """Move the reasoning out of the text; an answer that the parser cannot read becomes an error of its row."""
        try:
            done.reasoning, content, _ = self._new_parser().parse(
                done.text, self._request, model_output_token_ids=token_ids
            )
            done.text = content or ""
        except Exception as error:
            done.finish_reason = "error"
            done.error = f"The reasoning parser failed: {_one_line(error)}"
