"""Rows to requests: every kind of prompt, and every way in which a row can be bad."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from batchjobs.engines.base import Request
from batchjobs.errors import ContextTooShort, EngineFailed, SpecError
from batchjobs.rows.prompts import Renderer, RowError
from batchjobs.rows.tokens import ByteTokenizer
from batchjobs.spec import parse_job

AS_OF = datetime(2026, 11, 28, 12, tzinfo=UTC)


def render(
    table: pa.Table, max_model_len: int = 100, vocab_size: int = 256, **sections: Any
) -> list[Request | RowError]:
    spec = {
        "name": "t", "input": {"path": "x"}, "output": {"path": "y"}, "engine": {"kind": "echo"},
        "sampling": {"max_tokens": 10}, **sections,
    }  # fmt: skip
    renderer = Renderer(parse_job(spec), table.schema, AS_OF, keep_text=True)
    renderer.connect(ByteTokenizer(), max_model_len, vocab_size, "model")
    batch = table.select(renderer.columns).combine_chunks().to_batches()
    return renderer.requests(batch[0], range(100, 100 + table.num_rows))


def texts(made: list[Request | RowError]) -> list[str | None]:
    return [m.text if isinstance(m, Request) else f"!{m.code}" for m in made]


def column(*values: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


def test_a_text_column_is_the_whole_prompt() -> None:
    assert texts(render(column("a", "b c"), prompt={"column": "c"})) == ["a", "b c"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_any_kind_of_text_column_will_do(kind: pa.DataType) -> None:
    table = pa.table({"c": pa.array(["a", None]).cast(kind)})
    assert texts(render(table, prompt={"column": "c"})) == ["a", "!null_prompt"]


def test_a_template_sees_the_columns_of_the_row() -> None:
    table = pa.table({"a": [1, 2], "my col": ["x", "y"], "s": [{"k": 5}, {"k": 6}]})
    assert texts(render(table, prompt={"template": "{{ a }}-{{ row['my col'] }}-{{ s.k }}"})) == ["1-x-5", "2-y-6"]


def test_system_and_user_become_a_chat() -> None:
    made = render(column("hi"), prompt={"system": "Be {{ c }}", "user": "Say {{ c }}"})
    assert texts(made) == ["system: Be hi\nuser: Say hi"]


def test_messages_become_a_chat() -> None:
    table = column([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    assert texts(render(table, prompt={"messages_column": "c"})) == ["user: hi\nassistant: ho"]


def test_token_ids_are_taken_as_they_are() -> None:
    made = render(column([1, 2, 3]), prompt={"token_ids_column": "c"})
    assert isinstance(made[0], Request)
    assert made[0].token_ids == [1, 2, 3]


def test_rows_carry_their_numbers() -> None:
    assert [m.row for m in render(column("a", None, "c"), prompt={"column": "c"})] == [100, 101, 102]


@pytest.mark.parametrize(
    ("table", "prompt", "code"),
    [
        (column(None, kind=pa.string()), {"column": "c"}, "null_prompt"),
        (column(""), {"column": "c"}, "empty_prompt"),
        (column(" \n\t "), {"column": "c"}, "empty_prompt"),
        (column(None, kind=pa.string()), {"template": "say {{ c }}"}, "null_prompt"),
        (column(""), {"template": "{{ c }} "}, "empty_prompt"),
        (column(""), {"system": "Be nice", "user": "{{ c }}"}, "empty_prompt"),
        (column({"a": 1}), {"template": "{{ c.b }}"}, "template_error"),
        (column(0), {"template": "{{ 1 / c }}"}, "template_error"),
        (column("x"), {"template": "{{ c.__class__.__mro__ }}"}, "template_error"),
        (column("x"), {"template": "{% for i in range(10000000) %}{{ c }}{% endfor %}"}, "template_error"),
        (column("x" * 100), {"column": "c"}, "prompt_too_long"),
        (column("x" * 101), {"column": "c"}, "prompt_too_long"),
        (column(None, kind=pa.list_(pa.int64())), {"token_ids_column": "c"}, "null_prompt"),
        (column([], kind=pa.list_(pa.int64())), {"token_ids_column": "c"}, "empty_prompt"),
        (column([1, -1]), {"token_ids_column": "c"}, "bad_token_ids"),
        (column([1, 256]), {"token_ids_column": "c"}, "bad_token_ids"),
        (column([1, 2**63], kind=pa.list_(pa.uint64())), {"token_ids_column": "c"}, "bad_token_ids"),
        (column([1, None]), {"token_ids_column": "c"}, "bad_token_ids"),
        (column([1.0]), {"token_ids_column": "c"}, "bad_token_ids"),
        (column(["1"]), {"token_ids_column": "c"}, "bad_token_ids"),
        (column([True]), {"token_ids_column": "c"}, "bad_token_ids"),
    ],
)  # fmt: skip
def test_a_bad_row_ends_with_its_own_code(table: pa.Table, prompt: dict[str, Any], code: str) -> None:
    assert texts(render(table, prompt=prompt)) == [f"!{code}"]


MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        (None, "null_prompt"),
        ([], "bad_messages"),
        ([{"role": None, "content": "a"}], "bad_messages"),
        ([{"role": "user", "content": None}], "bad_messages"),
        ([None], "bad_messages"),
        ([{"role": "user", "content": "  "}], "empty_prompt"),
    ],
)
def test_malformed_messages_end_with_their_own_code(messages: Any, code: str) -> None:
    assert texts(render(column(messages, kind=MESSAGES), prompt={"messages_column": "c"})) == [f"!{code}"]


def test_one_bad_row_leaves_its_neighbours_alone() -> None:
    made = render(column("a", None, "", "d"), prompt={"column": "c"})
    assert texts(made) == ["a", "!null_prompt", "!empty_prompt", "d"]


def test_text_that_is_not_utf8_is_one_rows_error() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")]
    )
    assert texts(render(pa.table({"c": bad}), prompt={"column": "c"})) == ["a", "!bad_value", "c"]


def test_a_date_that_python_cannot_hold_is_one_rows_error() -> None:
    table = pa.table({"c": ["x", "y"], "t": pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("s"))})
    assert texts(render(table, prompt={"template": "{{ c }} {{ t.year }}"})) == ["x 1970", "!bad_value"]


def test_the_longest_prompt_that_leaves_room_for_one_token_is_good() -> None:
    assert texts(render(column("x" * 99), prompt={"column": "c"})) == ["x" * 99]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"column": "d"}, r"prompt\.column: found d; allowed: one of the columns c"),
        ({"token_ids_column": "c"}, r"the column c is string; allowed: a list"),
        ({"messages_column": "c"}, r"allowed: list<struct<role, content>>"),
        ({"template": "hello"}, r"found no column, so every row would get the same answer"),
        ({"template": "{{ d }}"}, r"found \{\{ d \}\}; allowed: the columns c"),
        ({"template": "{{ c"}, r"template error in line 1"),
        ({"user": "{{ c.x }", "system": "s"}, r"prompt\.user"),
    ],
)
def test_a_prompt_that_does_not_fit_the_dataset_is_refused(prompt: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        render(column("a"), prompt=prompt)


def test_templates_see_the_instant_of_the_plan() -> None:
    assert texts(render(column("a"), prompt={"template": "{{ c }} {{ strftime_now('%Y-%m-%d') }}"})) == ["a 2026-11-28"]


def test_equal_requests_have_equal_hashes_and_others_do_not() -> None:
    made = render(column("a", "a", "b"), prompt={"column": "c"})
    hashes = [m.request_hash for m in made]
    assert hashes[0] == hashes[1] != hashes[2]
    other = render(column("a"), prompt={"column": "c"}, sampling={"max_tokens": 11})
    assert other[0].request_hash != hashes[0]


def sampling_column(**values: Any) -> pa.Table:
    return pa.table({"c": ["a"], "p": pa.array([values or None])})


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"temperature": 0.5}, {"max_tokens": 10, "top_p": 0.9, "temperature": 0.5}),
        ({"max_tokens": 3, "top_p": None}, {"max_tokens": 3, "top_p": 0.9}),
        (
            {"structured_outputs": {"json": None, "regex": "a+"}},
            {"max_tokens": 10, "top_p": 0.9, "structured_outputs": {"regex": "a+"}},
        ),
    ],
)  # fmt: skip
def test_a_rows_own_values_go_over_the_specs(own: dict[str, Any], expected: dict[str, Any]) -> None:
    sampling = {"max_tokens": 10, "top_p": 0.9, "per_row_column": "p"}
    made = render(sampling_column(**own), prompt={"column": "c"}, sampling=sampling)
    assert isinstance(made[0], Request)
    assert made[0].sampling == expected
    assert made[0].max_tokens == expected["max_tokens"]


@pytest.mark.parametrize("own", [{"temperature": -1.0}, {"temperature": "hot"}, {"max_tokens": 0}, {"top_p": 1.5}])
def test_bad_own_values_are_the_rows_error(own: dict[str, Any]) -> None:
    made = render(sampling_column(**own), prompt={"column": "c"}, sampling={"max_tokens": 10, "per_row_column": "p"})
    assert texts(made) == ["!bad_sampling"]


def test_a_row_without_own_values_takes_the_specs() -> None:
    table = pa.table({"c": ["a"], "p": pa.array([None], pa.struct({"temperature": pa.float64()}))})
    made = render(table, prompt={"column": "c"}, sampling={"max_tokens": 10, "per_row_column": "p"})
    assert isinstance(made[0], Request)
    assert made[0].sampling == {"max_tokens": 10}


@pytest.mark.parametrize("name", ["namespace", "range", "dict", "cycler", "as_of", "strftime_now"])
def test_a_column_comes_before_a_name_of_the_template_language(name: str) -> None:
    assert texts(render(pa.table({name: ["VALUE"]}), prompt={"template": f"{{{{ {name} }}}}"})) == ["VALUE"]


def test_a_column_called_self_has_to_be_named_through_the_row() -> None:
    table = pa.table({"self": ["VALUE"]})
    with pytest.raises(SpecError, match=r"row\['self'\]"):
        render(table, prompt={"template": "{{ self }}"})
    assert texts(render(table, prompt={"template": "{{ row['self'] }}"})) == ["VALUE"]


def with_short_context(lowered: bool) -> Renderer:
    """An engine of 35 tokens, of a model that has 100; requests of 10 output tokens."""
    spec = {
        "name": "t", "input": {"path": "x"}, "output": {"path": "y"}, "engine": {"kind": "echo"},
        "sampling": {"max_tokens": 10}, "prompt": {"column": "c"},
    }  # fmt: skip
    renderer = Renderer(parse_job(spec), pa.schema([("c", pa.string())]), AS_OF)
    renderer.connect(ByteTokenizer(), 35, vocab_size=256, model_id="m", own_max_len=100, lowered=lowered)
    return renderer


def batch_of(text: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"c": [text]})


def test_a_context_that_a_remedy_lowered_fails_the_job_for_the_first_row_that_needs_more() -> None:
    renderer = with_short_context(lowered=True)
    assert isinstance(renderer.requests(batch_of("x" * 20), [0])[0], Request)
    with pytest.raises(EngineFailed, match="row 1 may need 40 tokens of context"):
        renderer.requests(batch_of("x" * 30), [1])


def test_a_context_that_was_chosen_ends_this_life_for_the_first_row_that_needs_more() -> None:
    renderer = with_short_context(lowered=False)
    assert isinstance(renderer.requests(batch_of("x" * 25), [0])[0], Request)
    for length, needed in ((26, 36), (90, 100), (95, 100)):  # the last one would be cut by the model itself
        with pytest.raises(ContextTooShort, match=f"row 1 may need {needed} tokens of context, more than the 35"):
            renderer.requests(batch_of("x" * length), [1])


@pytest.mark.parametrize("lowered", [True, False])
def test_a_row_too_long_for_the_model_itself_is_that_rows_error_whatever_context_was_chosen(lowered: bool) -> None:
    (made,) = with_short_context(lowered).requests(batch_of("x" * 100), [1])
    assert isinstance(made, RowError)
    assert (made.code, made.message) == (
        "prompt_too_long", "the prompt has 100 tokens; max_model_len is 100, one is for the answer"
    )  # fmt: skip
