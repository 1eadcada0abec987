"""The vLLM engine on a two-layer random model: one engine for all tests, each test leaves it idle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchjobs.engines.base import Completion, Request, RequestRejected
from batchjobs.settings.capacity import kv_capacity
from batchjobs.settings.device import Device
from batchjobs.settings.model_config import kv_bytes_per_token, load_config, max_len_of
from schemas.job import JobSpec
from scripts.build_model import build_tiny_model

pytestmark = pytest.mark.engine

DEMO_MODEL = Path(__file__).parents[2] / "demo" / "model"
END_TOKEN = 1000  # of the model's generation_config, beside the tokenizer's own
PROMPT = list(range(3000, 3150))
MAX_MODEL_LEN = 512
KV_BLOCKS = 16  # of 128 tokens on CPU: few enough to be short of them on purpose

EXTRA = {
    "num_gpu_blocks_override": KV_BLOCKS,
    "structured_outputs_config": {
        "backend": "xgrammar",
        "disable_any_whitespace": True,
    },  # else a random model writes it
}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    """A job on the tiny model, whose generation_config says greedy and has a second end token."""
    model = tmp_path_factory.mktemp("engine") / "tiny"
    build_tiny_model(model, tokenizer_from=DEMO_MODEL)
    config = model / "generation_config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "temperature": 0.0, "eos_token_id": [2, END_TOKEN]}))
    return job(model, from_model=True)


def job(model: Path, from_model: bool = False) -> JobSpec:
    settings = {"enforce_eager": True, "kv_cache_memory_bytes": 256 << 20, "max_num_seqs": 32}
    return JobSpec.model_validate(
        {
            "name": "engine",
            "input": {"path": "unused"},
            "prompt": {"column": "unused"},
            "sampling": {"max_tokens": 8, "from_model": from_model},
            "model": {"name": str(model), "max_model_len": MAX_MODEL_LEN},
            "engine": {**settings, "extra": EXTRA},
            "output": {"path": "unused"},
        }
    )


@pytest.fixture(scope="module")
def engine(spec: JobSpec) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        from batchjobs.engines.vllm import VllmEngine

        engine = VllmEngine(spec)
        yield engine
        engine.close()


def answers(engine: Any, *requests: Request) -> list[Completion]:
    """Run the requests and give their completions in order of row."""
    for request in requests:
        engine.submit(request)
    done: list[Completion] = []
    while engine.unfinished():
        done += engine.step()
    return sorted(done, key=lambda completion: completion.row)


def answer(engine: Any, max_tokens: int = 8, ids: list[int] = PROMPT, **sampling: Any) -> Completion:
    """The completion of a single request."""
    (done,) = answers(engine, Request(1, ids, max_tokens, sampling))
    return done


def test_the_engine_says_what_it_is_and_holds(engine: Any) -> None:
    info = engine.info
    assert (info.kind, info.max_model_len, info.max_num_seqs) == ("vllm", MAX_MODEL_LEN, 32)
    assert info.vocab_size == 49152
    assert info.max_num_batched_tokens >= MAX_MODEL_LEN
    assert info.kv_cache_tokens == KV_BLOCKS * 128
    assert info.model_max_len == 8192
    assert re.match(r"\d+\.\d+", info.version)


def test_the_formulas_agree_with_vllm(engine: Any, spec: JobSpec) -> None:
    config = engine.llm.model_config
    cache = engine.llm.llm_engine.vllm_config.cache_config
    own = load_config(spec)
    per_token = 2 * 2 * config.get_total_num_kv_heads() * config.get_head_size() * 2
    assert kv_bytes_per_token(own, spec).per_token == per_token
    assert max_len_of(own) == engine.info.model_max_len
    assert kv_capacity(spec, Device("cpu"), kv_bytes_per_token(own, spec), None).block == cache.block_size


def test_an_undecided_context_is_left_to_vllm(spec: JobSpec) -> None:
    from batchjobs.engines.vllm import llm_arguments

    assert spec.model is not None
    undecided = spec.model.model_copy(update={"max_model_len": "auto"})
    assert "max_model_len" not in llm_arguments(spec.model_copy(update={"model": undecided}))


def test_only_what_is_set_is_passed_to_vllm(engine: Any, spec: JobSpec) -> None:
    from batchjobs.engines.vllm import llm_arguments

    assert spec.model is not None
    assert llm_arguments(spec) == {
        "model": spec.model.name,
        "max_model_len": MAX_MODEL_LEN,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 256 << 20,
        "max_num_seqs": 32,
        **EXTRA,
        "disable_log_stats": False,
    }


def test_good_rows_come_back_with_counts_and_times(engine: Any) -> None:
    long, single = answers(
        engine,
        Request(7, PROMPT, 8, {"temperature": 0, "ignore_eos": True}),
        Request(9, PROMPT, 1, {"temperature": 0, "ignore_eos": True}),
    )
    assert (long.row, long.finish_reason, long.output_tokens, long.error) == (7, "length", 8, None)
    assert long.queue_s is not None
    assert long.ttft_s is not None
    assert long.tpot_s is not None
    assert 0 <= long.queue_s < long.ttft_s
    assert long.tpot_s > 0
    assert (single.row, single.output_tokens, single.tpot_s) == (9, 1, None)


def test_greedy_answers_repeat_and_are_those_of_generate(engine: Any) -> None:
    from vllm import SamplingParams

    prompts = [PROMPT, PROMPT[:20], [5, 6, 7], list(range(3000, 3300))]
    ours = [answer(engine, 12, ids, temperature=0) for ids in prompts]
    again = [answer(engine, 12, ids, temperature=0) for ids in prompts]
    parameters = SamplingParams(temperature=0, max_tokens=12)
    theirs = [
        engine.llm.generate({"prompt_token_ids": ids}, parameters, use_tqdm=False)[0].outputs[0] for ids in prompts
    ]
    assert [done.text for done in ours] == [done.text for done in again] == [output.text for output in theirs]
    assert [done.output_tokens for done in ours] == [len(output.token_ids) for output in theirs]


def test_an_answer_ends_where_the_context_ends(engine: Any) -> None:
    done = answer(engine, 100, list(range(10, 10 + MAX_MODEL_LEN - 12)), temperature=0, ignore_eos=True)
    assert (done.finish_reason, done.output_tokens) == ("length", 12)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "empty"),
        ([5] * MAX_MODEL_LEN, "longer than the maximum"),
        ([5] * 600, "longer than the maximum"),
        ([-1], "out of vocabulary"),
        ([49152], "outside the model's vocabulary"),
        ([10**30], "outside the model's vocabulary"),
        ([1, None], "integers"),
        ([1, True], "integers"),  # EngineCore would stop reading requests
        ([1.0], "integers"),
    ],
)
def test_bad_token_ids_are_rejected_and_leave_nothing(engine: Any, ids: list[Any], message: str) -> None:
    with pytest.raises(RequestRejected, match=message):
        engine.submit(Request(3, ids, 8))
    assert engine.unfinished() == 0


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"temperature": 3.0}, "temperature must be in"),
        ({"temperature": float("nan")}, "finite"),
        ({"temperature": "hot"}, "not supported between"),
        ({"ignore_eos": "yes"}, "Expected `bool`"),  # these three would make EngineCore stop reading requests
        ({"min_tokens": True}, "Expected `int`"),
        ({"seed": 1.5}, "Expected `int"),
        ({"seed": 2**63}, "64 bits"),
        ({"bogus": 1}, "bogus"),
        ({"stop_token_ids": [10**6]}, "out-of-vocab"),
        ({"allowed_token_ids": []}, "empty"),
        ({"logit_bias": {"x": 1}}, "invalid literal"),
        ({"structured_outputs": {"json": "{"}}, "JSON"),
        ({"structured_outputs": {"regex": "["}}, "regex"),
        ({"structured_outputs": {"json": "{}", "regex": "a"}}, "one kind"),
    ],
)
def test_bad_sampling_is_rejected_and_leaves_nothing(engine: Any, sampling: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestRejected, match=message):
        engine.submit(Request(3, PROMPT, 8, sampling))
    assert engine.unfinished() == 0


def test_a_request_that_fails_after_it_was_registered_leaves_nothing(engine: Any, monkeypatch: Any) -> None:
    def fail(request: object) -> None:
        raise OverflowError("int too big to convert")

    with monkeypatch.context() as patch:
        patch.setattr(engine.llm.llm_engine.engine_core, "add_request", fail)
        with pytest.raises(RequestRejected, match="too big"):
            engine.submit(Request(3, PROMPT, 8))
    assert engine.unfinished() == 0


def test_rejected_requests_do_not_touch_the_others(engine: Any) -> None:
    engine.submit(Request(1, PROMPT, 4, {"temperature": 0, "ignore_eos": True}))
    with pytest.raises(RequestRejected):
        engine.submit(Request(2, [], 4))
    (third,) = [done for done in answers(engine, Request(3, PROMPT, 4, {"temperature": 0})) if done.row == 3]
    assert third.finish_reason in {"length", "stop"}
    assert engine.unfinished() == 0


def test_one_call_answers_as_requests_fed_one_by_one_do(engine: Any) -> None:
    requests = [Request(row, PROMPT[row:], 4 + row, {"temperature": 0, "ignore_eos": True}) for row in (7, 3, 5)]
    fed = {done.row: done.text for done in answers(engine, *requests)}
    steps: list[int] = []
    called = engine.generate(requests, steps.append)
    assert [(done.row, done.text, done.output_tokens) for done in called] == [(r, fed[r], 4 + r) for r in (7, 3, 5)]
    assert all(done.ttft_s > 0 for done in called)
    assert len(steps) > 11  # a sign for each step, not only for each answer
    assert (steps[0], steps[-1]) == (3, 0)
    assert engine.unfinished() == 0


@pytest.mark.parametrize(
    "bad", [([49152], {}), (PROMPT, {"temperature": 3.0}), ([5] * 600, {}), (PROMPT, {"stop_token_ids": [10**6]})]
)
def test_a_bad_request_in_a_call_costs_only_itself(engine: Any, bad: tuple[list[int], dict[str, Any]]) -> None:
    """The last two pass our checks, and vLLM refuses the whole call."""
    good = [Request(row, PROMPT, 4, {"temperature": 0, "ignore_eos": True}) for row in (1, 3)]
    outcomes = engine.generate([good[0], Request(2, bad[0], 4, bad[1]), good[1]], lambda unanswered: None)
    assert isinstance(outcomes[1], RequestRejected)
    assert [(outcomes[i].row, outcomes[i].output_tokens) for i in (0, 2)] == [(1, 4), (3, 4)]
    assert engine.unfinished() == 0


def test_a_request_that_fails_in_a_call_after_it_was_registered_leaves_nothing(engine: Any, monkeypatch: Any) -> None:
    add_request, calls = engine.llm.llm_engine.engine_core.add_request, []

    def fail_once(request: object) -> None:
        calls.append(request)
        if len(calls) == 2:
            raise OverflowError("int too big to convert")
        add_request(request)

    requests = [Request(row, PROMPT, 4, {"temperature": 0, "ignore_eos": True}) for row in (1, 2, 3)]
    with monkeypatch.context() as patch:
        patch.setattr(engine.llm.llm_engine.engine_core, "add_request", fail_once)
        outcomes = engine.generate(requests, lambda unanswered: None)
    assert [done.output_tokens for done in outcomes] == [4, 4, 4]
    assert engine.unfinished() == 0


def test_structured_outputs_constrain_the_answer(engine: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    choice, regex, as_json = answers(
        engine,
        Request(1, PROMPT, 20, {"structured_outputs": {"choice": ["yes", "no"]}}),
        Request(2, PROMPT, 20, {"structured_outputs": {"regex": "[a-z]{3}-[0-9]{4}"}}),
        Request(3, PROMPT, 50, {"structured_outputs": {"json": schema}}),
    )
    assert choice.text in {"yes", "no"}
    assert choice.finish_reason == "stop"
    assert re.fullmatch("[a-z]{3}-[0-9]{4}", regex.text or "")
    assert set(json.loads(as_json.text or "")) == {"a", "b"}


def test_a_schema_is_validated_once_for_all_rows_that_have_it(engine: Any, monkeypatch: Any) -> None:
    from vllm.v1.structured_output import backend_xgrammar

    calls: list[object] = []
    validate = backend_xgrammar.validate_xgrammar_grammar
    monkeypatch.setattr(
        backend_xgrammar, "validate_xgrammar_grammar", lambda params: (calls.append(params), validate(params))
    )
    choices = {"structured_outputs": {"choice": ["left", "right"]}}
    done = answers(engine, *(Request(row, PROMPT, 8, dict(choices)) for row in range(5)))
    assert {completion.text for completion in done} <= {"left", "right"}
    assert len(calls) == 1


def test_rows_have_their_own_sampling(engine: Any) -> None:
    allowed, stopped, biased = answers(
        engine,
        Request(1, PROMPT, 3, {"allowed_token_ids": [2000]}),
        Request(2, PROMPT, 5, {"allowed_token_ids": [2000], "stop_token_ids": [2000]}),
        Request(3, PROMPT, 2, {"logit_bias": {"2000": 100.0}, "temperature": 0}),  # as JSON has it
    )
    assert (allowed.finish_reason, allowed.output_tokens) == ("length", 3)
    assert (stopped.finish_reason, stopped.output_tokens) == ("stop", 1)
    assert biased.text
    assert biased.text in (allowed.text or "")


def test_a_repetition_is_a_good_end(engine: Any) -> None:
    done = answer(engine, 50, allowed_token_ids=[2000], repetition_detection={"max_pattern_size": 2, "min_count": 4})
    assert done.finish_reason == "repetition"
    assert done.error is None


def test_from_model_starts_from_the_generation_config_and_a_row_overrides_it(engine: Any) -> None:
    greedy = answer(engine, temperature=0).text
    assert answer(engine).text == greedy
    assert answer(engine, temperature=2, seed=1).text != greedy


def test_end_tokens_of_the_generation_config_always_apply_and_sampling_values_never_by_themselves(engine: Any) -> None:
    from vllm import SamplingParams

    def plain(**values: Any) -> Any:
        prompt = {"prompt_token_ids": PROMPT}
        return engine.llm.generate(prompt, SamplingParams(max_tokens=8, **values), use_tqdm=False)[0].outputs[0]

    greedy = plain(temperature=0).text
    assert plain(seed=1).text != greedy
    assert plain(allowed_token_ids=[END_TOKEN]).finish_reason == "stop"
    ended = answer(engine, allowed_token_ids=[END_TOKEN])
    assert (ended.finish_reason, ended.output_tokens) == ("stop", 1)


def test_prefix_cache_hits_are_counted_per_row_and_in_all(engine: Any) -> None:
    engine.llm.reset_prefix_cache()
    ids = list(range(5000, 5300))
    before = engine.stats()
    first, second = (answer(engine, 2, ids, temperature=0) for _ in range(2))
    after = engine.stats()
    assert (first.cached_tokens, second.cached_tokens) == (0, 256)  # whole blocks of 128
    assert after.prefix_cache_queries - before.prefix_cache_queries == 600
    assert after.prefix_cache_hits - before.prefix_cache_hits == 256


def test_preemptions_and_what_they_cost_are_counted(engine: Any) -> None:
    sampling = {"temperature": 0, "ignore_eos": True}
    requests = [Request(row, list(range(row, row + 120)), 20, sampling) for row in range(100, 130)]
    for request in requests:
        engine.submit(request)
    done = []
    while not (engine.stats().running and engine.stats().waiting):
        done += engine.step()
    done += answers(engine)
    assert [completion.output_tokens for completion in done] == [20] * 30
    stats = engine.stats()
    assert stats.preemptions > 0
    assert stats.recomputed_tokens > 0
    assert 0.8 < stats.kv_cache_usage_peak <= 1
    assert (stats.running, stats.waiting, stats.kv_cache_usage) == (0, 0, 0)


def test_without_the_private_hook_the_public_metrics_say_the_same(engine: Any) -> None:
    from batchjobs.engines.vllm_stats import stats_from_metrics

    answer(engine, 2, temperature=0)
    ours, public = engine.stats(), stats_from_metrics(engine.llm.get_metrics())
    assert public.kv_cache_usage_peak is None
    assert public.recomputed_tokens is None
    for name in ("running", "waiting", "kv_cache_usage", "prefix_cache_queries", "prefix_cache_hits", "preemptions"):
        assert getattr(public, name) == getattr(ours, name), name


def test_reasoning_is_split_from_the_answer_and_a_parser_error_is_one_rows_error(engine: Any, spec: JobSpec) -> None:
    from batchjobs.engines.vllm import _Reasoning

    assert spec.model is not None
    model = spec.model.model_copy(update={"reasoning_parser": "granite"})
    reasoning = _Reasoning(engine.llm, spec.model_copy(update={"model": model}))
    text = "Here is my thought process: six times seven. Here is my response: 42"
    done = Completion(1, "stop", text, 20)
    reasoning.split(done, [])
    assert ((done.reasoning or "").strip(), (done.text or "").strip()) == ("six times seven.", "42")
    broken = Completion(2, "stop", None, 20)
    reasoning.split(broken, [])
    assert broken.finish_reason == "error"
    assert "reasoning parser failed" in (broken.error or "")
