"""Every type that Parquet can hold is read as pyarrow reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.planned import ZOO, assert_identical, plan, write


@pytest.mark.parametrize("options", [{}, {"row_group_size": 7}, {"store_schema": False}, {"use_dictionary": False}])
def test_every_type_comes_out_as_pyarrow_reads_it(tmp_path: Path, options: dict[str, Any]) -> None:
    planned = write(tmp_path, ZOO, **options)
    expected = pq.read_table(tmp_path / "0.parquet")
    assert_identical(planned.read(), expected.replace_schema_metadata(None))


@pytest.mark.parametrize("name", ZOO.schema.names)
def test_a_column_comes_out_identical_alone(tmp_path: Path, name: str) -> None:
    assert_identical(
        write(tmp_path, ZOO, row_group_size=20).read(name),
        pq.read_table(tmp_path / "0.parquet", columns=None).select([name]).replace_schema_metadata(None),
    )


def test_every_type_is_added_as_null_where_a_file_lacks_it(tmp_path: Path) -> None:
    planned = write(tmp_path, pa.table({"id": [1, 2]}), ZOO.slice(0, 2))
    table = planned.read()
    table.validate(full=True)
    assert table.schema.types[1:] == pq.read_schema(tmp_path / "1.parquet").types
    assert table.slice(0, 2).to_pylist() == [{"id": n, **dict.fromkeys(ZOO.schema.names)} for n in (1, 2)]


def test_columns_come_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    planned = write(tmp_path, ZOO)
    assert planned.read("with", "bool", "with.dot").schema.names == ["with", "bool", "with.dot"]


def test_null_columns_and_narrow_integers_are_widened(tmp_path: Path) -> None:
    messages = pa.array([[{"role": "user", "name": "x"}]])
    nameless = pa.array([[{"role": "user", "name": None}]])
    planned = write(
        tmp_path,
        pa.table({"n": pa.array([1], pa.int8()), "text": pa.nulls(1), "messages": nameless}),
        pa.table({"n": pa.array([2], pa.uint32()), "text": ["x"], "messages": messages}),
    )
    assert planned.schema.field("n").type == pa.int64()
    assert planned.read().to_pylist() == [
        {"n": 1, "text": None, "messages": [{"role": "user", "name": None}]},
        {"n": 2, "text": "x", "messages": [{"role": "user", "name": "x"}]},
    ]


def test_hive_columns_are_constants_of_their_file(tmp_path: Path) -> None:
    for folder in ("lang=en", "lang=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / folder / "x.parquet")
    planned = plan(tmp_path)
    assert planned.read("lang", "n")["lang"].to_pylist() == [None, None, "en", "en"]
    assert planned.read("lang")["lang"].to_pylist() == [None, None, "en", "en"]
    assert planned.schema.field("lang").type == pa.string()
