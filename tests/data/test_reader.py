"""Reading shards: the same rows and types that pyarrow reads, whatever the order, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchjobs.data import reader
from batchjobs.data.dataset import find_files, hive_columns, unify_schemas
from batchjobs.data.footers import read_footers
from batchjobs.data.reader import ShardReader
from batchjobs.errors import BatchjobsError, InputChanged
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


def assert_identical(found: pa.Table, expected: pa.Table) -> None:
    found.validate(full=True)
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.to_pylist() == expected.to_pylist()


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


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """200 rows in files and row groups of many sizes, some without rows."""
    folder = tmp_path_factory.mktemp("many")
    full = zoo(200).select(["string", "dictionary", "messages", "map"]).add_column(0, "row", pa.array(range(200)))
    start = 0
    for number, (rows, group) in enumerate([(50, 50), (0, 1), (1, 1), (60, 7), (0, 1), (89, 40)]):
        pq.write_table(full.slice(start, rows), folder / f"{number}.parquet", row_group_size=group)
        start += rows
    return plan(folder)


runs = st.lists(st.tuples(st.integers(0, 199), st.integers(1, 90)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(runs, st.sampled_from([1, 3, 64, 8192]))
def test_shards_in_any_order_give_the_rows_of_the_whole_table(
    many: Planned, runs: list[tuple[int, int]], batch_rows: int
) -> None:
    whole = many.read()
    with pytest.MonkeyPatch.context() as patch, many.reader() as shards:
        patch.setattr(reader, "BATCH_ROWS", batch_rows)
        for first, rows in runs:
            shard = Shard(first, min(rows, 200 - first))
            batches = shards.read(shard)
            assert all(batch.schema == many.schema and 0 < batch.num_rows <= batch_rows for batch in batches)
            assert pa.Table.from_batches(batches).to_pylist() == whole.slice(*shard).to_pylist()


def test_shards_in_ascending_order_decode_each_row_group_once(many: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[tuple[str, int]] = []
    decode = ShardReader._decode

    def counted(self: ShardReader, file: int, group: int) -> Any:
        decoded.append((many.files[file].name, group))
        return decode(self, file, group)

    monkeypatch.setattr(ShardReader, "_decode", counted)
    shards = many.reader()
    rows = [
        row
        for first in range(0, 200, 9)
        for b in shards.read(Shard(first, min(9, 200 - first)))
        for row in b["row"].to_pylist()
    ]
    assert rows == list(range(200))
    assert len(decoded) == len(set(decoded))


def test_row_groups_and_files_before_a_shard_are_not_decoded(tmp_path: Path) -> None:
    planned = write(tmp_path, *(pa.table({"n": range(start, start + 40)}) for start in (0, 40)), row_group_size=10)
    for file in planned.files:
        path = Path(file.path)
        spoiled = bytearray(path.read_bytes())
        start = pq.read_metadata(path).row_group(3).column(0).dictionary_page_offset
        spoiled[4:start] = b"\xff" * (start - 4)
        path.write_bytes(spoiled)  # only the last row group can be decoded
    shards = planned.reader()
    assert shards.read(Shard(30, 10))[0]["n"].to_pylist() == list(range(30, 40))
    assert shards.read(Shard(72, 8))[0]["n"].to_pylist() == list(range(72, 80))
    with pytest.raises(BatchjobsError, match=r"Rows 38 to 42 could not be read from .*1\.parquet"):
        shards.read(Shard(38, 5))
    assert shards.read(Shard(30, 1))[0]["n"].to_pylist() == [30]


def test_a_damaged_page_is_an_error_and_never_wrong_text(tmp_path: Path) -> None:
    planned = write(tmp_path, pa.table({"t": ["ok" * 100]}), write_page_checksum=True, compression="none")
    path = Path(planned.files[0].path)
    path.write_bytes(path.read_bytes().replace(b"okok", b"okOk", 1))
    with pytest.raises(BatchjobsError, match=r"0\.parquet.*checksum"):
        planned.read()


def test_batches_are_small_where_rows_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = write(tmp_path, pa.table({"t": ["x" * 1000] * 100}), use_dictionary=False, write_statistics=False)
    monkeypatch.setattr(reader, "BATCH_BYTES", 10_100)
    assert {batch.num_rows for batch in planned.reader().read(Shard(0, 100))} == {10}


@pytest.mark.parametrize("protocol", ["file", "memory"])
@pytest.mark.parametrize(
    ("now", "found"),
    [
        (pa.table({"n": [1, 2, 4]}), "its footer differs"),
        (pa.table({"n": range(1000)}), r"it has \d+ bytes, \d+ were planned"),
        (None, "it is gone"),
    ],
)
def test_a_file_that_is_not_the_planned_one_is_not_read(
    tmp_path: Path, protocol: str, now: pa.Table | None, found: str
) -> None:
    fs, path = fsspec.filesystem(protocol), f"{tmp_path}/x.parquet"
    with fs.open(path, "wb") as file:
        pq.write_table(pa.table({"n": [1, 2, 3]}), file)
    planned = plan(f"{protocol}://{path}")
    assert planned.read()["n"].to_pylist() == [1, 2, 3]
    fs.rm(path)
    if now is not None:
        with fs.open(path, "wb") as file:
            pq.write_table(now, file)
    with pytest.raises(InputChanged, match=rf"x\.parquet is not the file that was planned: {found}.*Nothing of it was"):
        planned.read()


def test_a_row_group_with_fewer_rows_than_planned_is_refused(tmp_path: Path) -> None:
    planned = write(tmp_path, pa.table({"n": [1, 2, 3]}))
    planned.files = [planned.files[0].model_copy(update={"row_groups": [5]})]
    with pytest.raises(InputChanged, match=r"0\.parquet: row group 0 has 3 rows, 5 were planned"):
        planned.read()


def test_a_large_remote_file_is_read_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WHOLE_FILE_BYTES", 0)
    with fsspec.filesystem("memory").open("/ranges/x.parquet", "wb") as file:
        pq.write_table(ZOO, file, row_group_size=9)
    assert plan("memory://ranges").read().to_pylist() == ZOO.to_pylist()


HUGE_ROWS = """
import sys
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
from tests.data.test_reader import plan
from schemas.plan import Shard

folder = sys.argv[1]
huge = "x" * (64 * 2**20)
small, large = (pa.array([[text]] * n) for text, n in (("small", 1000), (huge, 1)))
# A dictionary holds the huge text once, so that the file is quickly written and its averages hide the huge rows.
pq.write_table(pa.table({"t": pa.chunked_array([small, *[large] * 33])}), folder + "/x.parquet",
               compression="zstd", dictionary_pagesize_limit=2**28, write_statistics=False)
planned = plan(folder)
assert planned.files[0].row_groups == [1033]
shards, lengths = planned.reader(), []
for first in range(1033):
    for batch in shards.read(Shard(first, 1)):
        lengths += pc.binary_length(batch["t"].flatten()).to_pylist()
assert lengths == [5] * 1000 + [len(huge)] * 33
"""


def test_two_gib_of_text_in_one_column_chunk_do_not_overflow(tmp_path: Path) -> None:
    """In lists, which Arrow cannot chunk by itself; in a process of its own, which gives the memory back.

    The averages of the footer do not show the few huge rows.
    """
    subprocess.run([sys.executable, "-c", HUGE_ROWS, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])


STREAM = """
import resource, sys
from tests.data.test_reader import plan
from schemas.plan import Shard

planned = plan(sys.argv[1])
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
shards, before = planned.reader(), peak()
for first in range(0, planned.rows, 4096):
    shards.read(Shard(first, min(4096, planned.rows - first)))
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    texts = pa.array([f"{n:08d}" * 100 for n in range(250)])
    with pq.ParquetWriter(tmp_path / "x.parquet", pa.schema({"t": pa.string()}), use_dictionary=False) as writer:
        writer.write_table(pa.table({"t": pa.chunked_array([texts] * 1000)}), row_group_size=250_000)
    assert pq.read_metadata(tmp_path / "x.parquet").row_group(0).total_byte_size > 190 * 2**20
    run = [sys.executable, "-c", STREAM, str(tmp_path)]
    grown = int(subprocess.run(run, check=True, cwd=Path(__file__).parents[2], capture_output=True).stdout)
    assert grown < 80 * 2**20
