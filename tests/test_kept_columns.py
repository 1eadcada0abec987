"""Kept columns of any Arrow type come out identical."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.records import RESULT_COLUMNS
from tests.conftest import MakeJob, read_output, run_here

S = pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})
ZOO: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    "int8": pa.array([1, None, -1], pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "float16": pa.array([1.5, None, -0.0], pa.float16()),
    "float64": pa.array([float("nan"), None, 1e300]),
    "decimal": pa.array([Decimal("1.23"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
    "decimal256": pa.array([Decimal(10) ** 40, None, Decimal(1)], pa.decimal256(50, 0)),
    "date": pa.array([date(2026, 1, 1), None, date(1, 1, 1)]),
    "time": pa.array([time(1, 2, 3, 4), None, time(0)]),
    "timestamp_zone": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 2 + [None], pa.timestamp("us", "Europe/Berlin")),
    "timestamp_ns": pa.array([1, None, 2**62], pa.timestamp("ns")),
    "timestamp_ms": pa.array([1, None, 2**45], pa.timestamp("ms")),
    "duration": pa.array([timedelta(seconds=1), None, timedelta(days=3)]),
    "string": pa.array(["ä\0b", None, ""]),
    "large_string": pa.array(["x", None, ""], pa.large_string()),
    "string_view": pa.array(["a long string that is not inlined", None, ""], pa.string_view()),
    "binary": pa.array([b"\xff\x00", None, b""]),
    "binary_view": pa.array([b"\xff", None, b""], pa.binary_view()),
    "fixed_binary": pa.array([b"abcd", None, b"\0\0\0\0"], pa.binary(4)),
    "dictionary": pa.array(["x", None, "y"]).dictionary_encode(),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "large_list": pa.array([["a"], None, []], pa.large_list(pa.string())),
    "fixed_list": pa.array([[1, 2], None, [None, 4]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}], S),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nested": pa.array([[{"a": 1, "b": []}, None], None, []], pa.list_(S)),
    "null": pa.nulls(3),
}


def zoo(repeat: int = 1) -> pa.Table:
    """Every kind of column, three rows at a time, and a text to prompt with."""
    table = pa.table({"prompt": ["a", "b", "c"], **ZOO})
    return pa.concat_tables([table] * repeat)


@pytest.mark.parametrize("shard_rows", [2, 4096])
def test_every_type_comes_out_identical(make_job: MakeJob, tmp_path: object, shard_rows: int) -> None:
    job = make_job(zoo(3), prompt={"column": "prompt"}, run={"shard_rows": shard_rows})
    before = pq.read_table(job.input.path)
    run_here(job)
    after = read_output(job).drop_columns(list(RESULT_COLUMNS))
    assert after.schema.remove_metadata() == before.schema.remove_metadata()
    for name in before.column_names:
        assert after[name].combine_chunks().equals(before[name].combine_chunks()) or name == "float64", name
    assert str(after["float64"].to_pylist()) == str(before["float64"].to_pylist())  # NaN is not equal to itself


def test_a_filter_leaves_the_kept_values_of_the_other_rows(make_job: MakeJob) -> None:
    job = make_job(zoo(3), prompt={"column": "prompt"}, input={"filter": "prompt <> 'b'"}, run={"shard_rows": 2})
    run_here(job)
    after = read_output(job)
    assert after["row"].to_pylist() == [0, 2, 3, 5, 6, 8]
    expected = [ZOO["map"].to_pylist()[n % 3] for n in (0, 2, 3, 5, 6, 8)]
    assert after["map"].to_pylist() == expected
    assert str(after["struct"].to_pylist()) == str([ZOO["struct"].to_pylist()[n % 3] for n in (0, 2, 3, 5, 6, 8)])
