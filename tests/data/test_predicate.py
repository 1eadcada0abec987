"""The row-wise SQL predicate."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from batchjobs.data.predicate import Predicate
from batchjobs.errors import SpecError

ROWS = pa.record_batch(
    {
        "lang": pa.array(["en", None, "de", "en"]),
        "n": pa.array([1, 2, None, 4]),
        "a.b": pa.array([True, False, None, True]),
        "point": pa.array([{"x": 1}, {"x": None}, None, {"x": 4}]),
        "words": pa.array([["a"], [], None, ["a", "b"]]),
        "category": pa.array(["z", "a", None, "z"]).dictionary_encode(),
        "money": pa.array([Decimal(1), None, Decimal(2), Decimal(3)], pa.decimal256(50, 2)),
    }
)


def mask(text: str, batch: pa.RecordBatch = ROWS) -> list[bool | None]:
    wanted: list[bool | None] = Predicate(text, batch.schema).mask(batch).to_pylist()
    return wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lang = 'en'", [True, False, False, True]),
        ("lang is null or n in (2, 4)", [False, True, False, True]),
        ("not (lang = 'en')", [False, False, True, False]),
        ('"a.b"', [True, False, False, True]),
        ("point.x > 1", [False, False, False, True]),
        ("array_contains(words, 'b')", [False, False, False, True]),
        ("category > 'b'", [True, False, False, True]),
        ("lang LIKE 'd%' AND length(lang) = 2", [False, False, True, False]),
        ("n > NULL", [False, False, False, False]),
    ],
)
def test_a_mask_tells_each_wanted_row_and_null_is_false(text: str, wanted: list[bool]) -> None:
    predicate = Predicate(text, ROWS.schema)
    assert predicate.mask(ROWS).type == pa.bool_()
    assert predicate.mask(ROWS).to_pylist() == wanted
    assert predicate.mask(ROWS.slice(1, 2)).to_pylist() == wanted[1:3]
    assert predicate.mask(ROWS.slice(0, 0)).to_pylist() == []
    predicate.check_row_wise(ROWS)


def test_polars_sees_only_the_columns_that_are_named() -> None:
    assert Predicate("lang = 'en' and n > 1 and n < 9", ROWS.schema).columns == [
        "lang",
        "n",
    ]  # money would make it panic


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lang = ", "is not understood"),
        ("lang = 'en'; drop", "is not understood"),
        ("language = 'en'", "names the unknown column language; allowed: one of lang, n, a.b"),
        ("1 = 1", "names no column"),
        ("lang", "gives String"),
        ("n + 1", "gives Int64"),
        ("n > 'a'", "fails: cannot compare string with numeric type"),
        ("money > 1", "fails"),
        ("max(n) > 3", "has an aggregate or a window"),
        ("n >= avg(n)", "has an aggregate or a window"),
        ("n > lag(n) over (order by n)", "has an aggregate or a window"),
        ("n in (select 1)", "has a subquery"),
        ("n = 1 and now() > lang", "reads the clock"),
    ],
)
def test_what_is_no_row_wise_predicate_is_refused_naming_the_key(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=r"^input\.filter: ") as refused:
        Predicate(text, ROWS.schema)
    assert message in str(refused.value)


def test_a_text_that_mentions_the_clock_reads_no_clock() -> None:
    assert mask("lang = 'now()' or n = 1") == [True, False, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "n > avg(n)",
        "n > avg(n) over ()",
        "row_number() over (order by n) < 3",
        "sum(n) over (partition by lang) > 4",
        "n > lag(n) over (order by n)",
        "count(*) over (partition by lang) = 2",
        "unnest(words) = 'a'",
    ],
)
def test_a_predicate_that_depends_on_other_rows_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"^input\.filter: .*; allowed: predicates over one row"):
        Predicate(text, ROWS.schema).check_row_wise(ROWS)


def test_a_row_on_which_the_predicate_fails_costs_that_row_only() -> None:
    batch = pa.record_batch({"n": ["7", "x", "9", None] * 25})
    assert mask("cast(n as int) > 8", batch) == [False, None, True, False] * 25


def test_text_that_is_not_utf8_costs_its_row_only() -> None:
    raw = pa.array([b"en", b"e\xff", b"de", None])
    text = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    for column in (text, text.dictionary_encode()):
        assert mask("lang = 'en'", pa.record_batch({"lang": column})) == [True, None, False, False]


def test_a_predicate_that_fails_on_every_row_is_refused() -> None:
    batch = pa.record_batch({"n": ["x", "y"]})
    with pytest.raises(SpecError, match="fails on each of the first 2 rows"):
        Predicate("cast(n as int) > 8", batch.schema).check_row_wise(batch)
