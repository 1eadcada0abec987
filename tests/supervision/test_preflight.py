"""Checks of the engine before anything is written: its interpreter, and the names that only vLLM knows."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from batchjobs import __version__
from batchjobs.errors import Refused, SpecError
from batchjobs.supervision.preflight import check_engine
from schemas.job import JobSpec


def job(**sections: dict[str, Any]) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "preflight",
            "input": {"path": "unused"},
            "prompt": {"column": "text"},
            "sampling": {"max_tokens": 8, **sections.get("sampling", {})},
            "model": {"name": "unused", **sections.get("model", {})},
            "engine": sections.get("engine", {}),
            "output": {"path": "unused"},
        }
    )


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """A stand-in for a Python whose modules are as the environment variables FOUND_* say."""
    path = tmp_path / "python"
    path.write_text(
        "#!/bin/sh\n"
        'echo "{\\"batchjobs\\": $FOUND_BATCHJOBS, \\"vllm\\": $FOUND_VLLM, \\"version\\": \\"$FOUND_VERSION\\"}"\n'
    )
    path.chmod(0o755)
    return str(path)


def found(interpreter: str, batchjobs: str = "true", vllm: str = "true", version: str = __version__) -> JobSpec:
    names = {"FOUND_BATCHJOBS": batchjobs, "FOUND_VLLM": vllm, "FOUND_VERSION": version}
    return job(engine={"python": interpreter, "env": names})


def test_an_interpreter_with_the_same_batchjobs_and_vllm_will_do(interpreter: str) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    check_engine(found(interpreter), [])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)] == before


def test_dtypes_that_every_vllm_knows_cost_no_import_of_it(interpreter: str) -> None:
    """The stand-in has no vLLM to ask: it would answer nonsense."""
    common = {"dtype": "bfloat16", "kv_cache_dtype": "fp8"}
    check_engine(found(interpreter).model_copy(update={"model": job(model=common).model}), [])


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ({"vllm": "false"}, r"has no vLLM\. .* -m pip install 'batchjobs\[gpu\]' \(or 'batchjobs\[cpu\]'"),
        ({"batchjobs": "false"}, r"has no batchjobs\. .* -m pip install 'batchjobs\[gpu\]'"),
        ({"version": "0.0.1"}, rf"has batchjobs 0\.0\.1, but this is {__version__}.*batchjobs=={__version__}"),
    ],
)
def test_what_an_interpreter_lacks_is_named_with_the_command_that_helps(
    interpreter: str, lacks: dict[str, str], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        check_engine(found(interpreter, **lacks), [])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nowhere/python", r"^engine\.python: found /nowhere/python; allowed: .*No such file"),
        ("/", r"^engine\.python: found /; allowed: .*Permission denied"),
        ("/bin/false", r"^engine\.python: found /bin/false, which does not run \(exit code 1\); allowed"),
    ],
)
def test_an_interpreter_that_does_not_run_is_refused_by_its_key(path: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_engine(job(engine={"python": path}), [])


def test_echo_knows_no_extra_names_and_starts_no_child() -> None:
    engine = {"kind": "echo", "python": "/bin/false"}
    check_engine(job(engine=engine), [])
    with pytest.raises(SpecError) as refused:
        check_engine(job(engine={**engine, "extra": {"block_size": 16}}, sampling={"extra": {"a": 1}}), ["b"])
    keys = [line.partition(":")[0] for line in str(refused.value).splitlines()]
    assert keys == ["engine.extra.block_size", "sampling.extra.a", "sampling.per_row_column.b"]


@pytest.mark.engine
def test_a_child_process_asks_vllm_and_each_problem_is_a_line() -> None:
    bad = job(engine={"extra": {"block_sise": 32, "block_size": 32}}, sampling={"extra": {"watermarkin": True}})
    with pytest.raises(SpecError) as refused:
        check_engine(bad, ["thinking_token_budget"])
    assert str(refused.value).splitlines() == [
        "engine.extra.block_sise: found block_sise; allowed: an argument of vllm.LLM; did you mean block_size?",
        "sampling.extra.watermarkin: found watermarkin; allowed: a parameter of vllm.SamplingParams; "
        "did you mean watermarking?",
    ]


def keys_and_answers(
    llm: dict[str, Any] | None = None, names: list[str] | None = None, **sampling: Any
) -> dict[str, str]:
    """What vLLM has against these, without a child: key -> allowed."""
    from batchjobs.engines.check import find_problems

    question = {"llm": llm or {}, "sampling": {"max_tokens": 8, **sampling}, "names": names or []}
    return {problem["key"]: problem["allowed"] for problem in find_problems(question)}


@pytest.mark.engine
def test_arguments_that_vllm_lacks_or_batchjobs_cannot_serve_are_refused() -> None:
    problems = keys_and_answers(
        {
            "skip_tokenizer_init": True,
            "performance_mode": "fast",
            "dtype": "bf16",
            "reasoning_parser": "qwen",
            "max_cudagraph_capture_size": 1024,
            "chat_template": "x",
        }
    )
    assert set(problems) == {
        "engine.extra.skip_tokenizer_init", "engine.extra.performance_mode", "model.dtype", "model.reasoning_parser",
    }  # fmt: skip
    assert "throughput" in problems["engine.extra.performance_mode"]
    assert "bfloat16" in problems["model.dtype"]
    assert "qwen3" in problems["model.reasoning_parser"]


@pytest.mark.engine
def test_sampling_names_are_checked_for_the_spec_and_for_rows() -> None:
    problems = keys_and_answers(
        names=["seeed", "flat_logprobs", "extra_args"], thinking_token_bugdet=3, priority=1, _eos_token_id=3
    )
    assert set(problems) == {
        "sampling.per_row_column.seeed", "sampling.per_row_column.flat_logprobs",
        "sampling.extra.thinking_token_bugdet", "sampling.extra.priority", "sampling.extra._eos_token_id",
    }  # fmt: skip
    assert "did you mean thinking_token_budget?" in problems["sampling.extra.thinking_token_bugdet"]
    assert "run.order" in problems["sampling.extra.priority"]


@pytest.mark.engine
def test_sampling_values_are_those_that_the_engine_will_take() -> None:
    problems = keys_and_answers(
        stop=[""], min_tokens=9, seed=2**63, extra_args=[1], logit_bias={"5": 1.0}, skip_reading_prefix_cache="yes"
    )
    assert set(problems) == {
        "sampling.stop", "sampling.min_tokens", "sampling.seed", "sampling.extra.extra_args",
        "sampling.extra.skip_reading_prefix_cache",
    }  # fmt: skip
    assert "empty string" in problems["sampling.stop"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ({"json": {"type": "object", "properties": {"a": {"type": "bogus"}}}}, "bogus"),
        ({"json": "{"}, "JSON"),
        ({"regex": "[a-z"}, "unclosed"),
        ({"grammar": "root ::= nowhere"}, "rammar"),
        ({"json": {"type": "object", "properties": {"a": {"type": "integer"}}}}, None),
        ({"json": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}}, None),
        ({"regex": "[a-z]{3}-[0-9]{4}"}, None),
        ({"choice": ["yes", "no"]}, None),
        ({"grammar": 'root ::= "a" | "b"'}, None),
    ],
)
def test_a_schema_that_no_backend_accepts_is_refused(constraint: dict[str, Any], message: str | None) -> None:
    problems = keys_and_answers(structured_outputs=constraint)
    if message is None:
        assert problems == {}
    else:
        assert message in problems["sampling.structured_outputs"]
