"""A dataset as the plan knows it, and a table with every type, for tests of reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.data.dataset import find_files, hive_columns, unify_schemas
from batchjobs.data.footers import read_footers
from batchjobs.data.reader import ShardReader
from schemas.plan import InputFile, Shard


@dataclass
class Planned:
    """A dataset as the plan knows it."""

    fs: Any
    files: list[InputFile]
    schema: pa.Schema

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def reader(self, columns: Sequence[str] = ()) -> ShardReader:
        paths = [file.path for file in self.files]
        return ShardReader(self.fs, paths, self.files, self.schema, columns or self.schema.names)

    def read(self, *columns: str) -> pa.Table:
        reader = self.reader(columns)
        return pa.Table.from_batches(reader.read(Shard(0, self.rows)))


def plan(path: Path | str) -> Planned:
    fs, found = find_files(str(path), {})
    footers = read_footers(fs, found)
    schema = unify_schemas([(f.file.name, f.schema) for f in footers], hive_columns(found))
    return Planned(fs, [footer.file for footer in footers], schema)


def write(folder: Path, *tables: pa.Table, **options: Any) -> Planned:
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", **options)
    return plan(folder)


def assert_identical(found: pa.Table, expected: pa.Table) -> None:
    found.validate(full=True)
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.to_pylist() == expected.to_pylist()


def zoo(rows: int) -> pa.Table:
    """One column of each type that Parquet can hold, every third value null."""

    def column(value: Callable[[int], Any], type_: pa.DataType) -> pa.Array:
        return pa.array([None if n % 3 == 2 else value(n) for n in range(rows)], type_)

    texts = column(lambda n: f"text {n % 7}", pa.string())
    columns = {
        "bool": column(lambda n: n % 2 == 0, pa.bool_()),
        "uint64": column(lambda n: 2**63 + n, pa.uint64()),
        "float16": column(lambda n: n / 2, pa.float16()),
        "double": column(lambda n: n / 3, pa.float64()),
        "decimal": column(lambda n: Decimal(n) / 4, pa.decimal128(12, 2)),
        "decimal256": column(lambda n: Decimal(n) / 4, pa.decimal256(60, 2)),
        "date": column(lambda n: n, pa.date32()),
        "time": column(lambda n: n, pa.time64("us")),
        "zoned": column(lambda n: n, pa.timestamp("us", "Europe/Berlin")),
        "seconds": column(lambda n: n, pa.timestamp("s")),
        "duration": column(lambda n: n * 1000, pa.duration("ns")),
        "string": texts,
        "large": texts.cast(pa.large_string()),
        "view": texts.cast(pa.string_view()),
        "binary": texts.cast(pa.binary()),
        "fixed": column(lambda n: b"%04d" % n, pa.binary(4)),
        "dictionary": texts.dictionary_encode(),
        "null": pa.nulls(rows),
        "list": column(lambda n: [None, f"x{n}"][: n % 3 + 1], pa.list_(pa.string())),
        "large_list": column(lambda n: [n] * (n % 3), pa.large_list(pa.int16())),
        "fixed_list": column(lambda n: [n, None], pa.list_(pa.int32(), 2)),
        "struct": column(lambda n: {"a": n, "b": None}, pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "messages": column(
            lambda n: [{"role": "user", "content": f"c{n}"}] * (n % 3),
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
        ),
        "map": column(lambda n: [("k", n), ("l", None)], pa.map_(pa.string(), pa.int64())),
        "uuid": column(lambda n: b"%016d" % n, pa.binary(16)).cast(pa.uuid()),
        "json": column(lambda n: "{}", pa.string()).cast(pa.json_()),
        "with.dot": column(lambda n: n, pa.int64()),
        "with": column(lambda n: {"dot": n, "x": n}, pa.struct([("dot", pa.int32()), ("x", pa.int32())])),
        "with space": column(lambda n: n % 100, pa.int8()),
    }
    return pa.table(columns)


ZOO = zoo(50)
