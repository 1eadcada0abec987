"""The model-free engine, and the contract of every engine."""

from __future__ import annotations

from typing import Any

import pytest

from batchjobs.engines.base import Request, RequestRejected
from batchjobs.engines.echo import EchoEngine
from batchjobs.spec import parse_job


def engine(**echo: Any) -> EchoEngine:
    return EchoEngine(
        parse_job({
            "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
            "engine": {"kind": "echo", "max_num_seqs": 2, "echo": echo}, "output": {"path": "y"},
        })
    )  # fmt: skip


def request(row: int, text: str = "abc", max_tokens: int = 100) -> Request:
    return Request(row, list(text.encode()), max_tokens, text=text)


def test_it_answers_the_prompt() -> None:
    echo = engine()
    echo.submit(request(1, "hello"))
    (done,) = echo.step()
    assert (done.row, done.text, done.finish_reason, done.output_tokens) == (1, "hello", "stop", 5)
    assert echo.unfinished() == 0


def test_an_answer_is_cut_at_max_tokens_and_never_inside_a_character() -> None:
    echo = engine()
    echo.submit(request(1, "aää", max_tokens=2))
    (done,) = echo.step()
    assert (done.text, done.finish_reason, done.output_tokens) == ("a", "length", 2)


def test_no_more_than_max_num_seqs_run_at_once() -> None:
    echo = engine()
    for row in range(5):
        echo.submit(request(row))
    assert (echo.stats().running, echo.stats().waiting) == (2, 3)
    assert [done.row for done in echo.step()] == [0, 1]


def test_it_misbehaves_on_request() -> None:
    echo = engine(reject_rows=[1], error_rows=[2], abort_rows=[3], raise_rows=[4])
    with pytest.raises(RequestRejected):
        echo.submit(request(1))
    echo.submit(request(2))
    echo.submit(request(3))
    assert [done.finish_reason for done in echo.step()] == ["error", "abort"]
    echo.submit(request(4))
    with pytest.raises(RuntimeError, match="row 4"):
        echo.step()


def test_it_fails_at_start_on_request() -> None:
    with pytest.raises(RuntimeError, match="no GPU"):
        engine(fail_at_start="no GPU")
