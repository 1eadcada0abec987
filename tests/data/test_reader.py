"""Reading shards: the same rows and types that pyarrow reads, whatever the order, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchjobs.data import reader
from batchjobs.data.reader import ShardReader
from batchjobs.errors import BatchjobsError, InputChanged
from schemas.plan import Shard
from tests.data.planned import ZOO, Planned, plan, write, zoo


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
