"""One schema for all files of a dataset."""

from __future__ import annotations

import pyarrow as pa
import pytest

from batchjobs.data.dataset import unify_schemas
from batchjobs.errors import InputError


def unified(*schemas: dict[str, pa.DataType] | pa.Schema, hive: tuple[str, ...] = ()) -> pa.Schema:
    return unify_schemas([(f"{number}.parquet", pa.schema(schema)) for number, schema in enumerate(schemas)], hive)


def test_columns_keep_the_order_in_which_they_appear_and_hive_columns_come_last() -> None:
    schema = unified({"b": pa.int64(), "a": pa.string()}, {"c": pa.bool_(), "a": pa.string()}, hive=("dt",))
    assert schema == pa.schema({"b": pa.int64(), "a": pa.string(), "c": pa.bool_(), "dt": pa.string()})


def test_a_column_is_nullable_if_a_file_lacks_it_or_allows_null() -> None:
    required = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in "abc"])
    optional = pa.schema([pa.field("b", pa.int64()), pa.field("c", pa.int64(), nullable=False)])
    assert [field.nullable for field in unified(required, optional)] == [True, True, False]
    assert [field.nullable for field in unified(optional, required)] == [True, False, True]


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.null(), pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8())),
        (pa.null(), pa.null(), pa.null()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint32()),
        (pa.uint32(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.list_(pa.null()), pa.list_(pa.string()), pa.list_(pa.string())),
        (pa.struct({"a": pa.null()}), pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64()})),
        (pa.list_(pa.field("element", pa.int64())), pa.list_(pa.int64()), pa.list_(pa.int64())),
    ],
)
def test_null_widens_to_any_type_and_integers_to_one_that_holds_both(
    one: pa.DataType, other: pa.DataType, common: pa.DataType
) -> None:
    assert unified({"x": one}, {"x": other}).field("x").type == common
    assert unified({"x": other}, {"x": one}).field("x").type == common


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (pa.int64(), pa.float64(), "Integers and floating point are not mixed"),
        (pa.int32(), pa.float64(), "Integers and floating point are not mixed"),
        (pa.int8(), pa.uint64(), "No integer type holds both"),
        (pa.string(), pa.large_string(), "Only missing columns"),
        (pa.float32(), pa.float64(), "Only missing columns"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "Only missing columns"),
        (pa.struct({"a": pa.int64()}), pa.struct({"b": pa.int64()}), "Only missing columns"),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), "Only missing columns"),
    ],
)
def test_any_other_difference_is_refused_naming_both_files_and_types(
    one: pa.DataType, other: pa.DataType, why: str
) -> None:
    with pytest.raises(InputError) as refused:
        unified({"x": one}, {"y": pa.int8()}, {"x": other})
    assert f"2.parquet: column 'x' is {other}; expected {one}, as in 0.parquet. {why}" in str(refused.value)


def test_the_file_that_gave_a_widened_type_is_the_one_named() -> None:
    with pytest.raises(InputError, match=r"2\.parquet: .*expected int64, as in 1\.parquet"):
        unified({"x": pa.int32()}, {"x": pa.int64()}, {"x": pa.string()})


def test_a_hive_column_that_a_file_has_as_well_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.parquet has a column 'dt' and lies in a dt=\.\.\. folder"):
        unified({"dt": pa.string()}, hive=("dt",))
