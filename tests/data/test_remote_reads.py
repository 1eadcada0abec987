"""How much of a remote dataset is fetched: footers to plan, then the wanted columns of the wanted row groups, once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.data import reader
from batchjobs.data.footers import TAIL_BYTES
from schemas.plan import Shard
from tests.conftest import MakeJob, run_here
from tests.data.test_reader import Planned, plan
from tests.one_process import in_one_process
from tests.watched_s3 import WatchedS3

GROUPS, ROWS = 20, 500
FILE = "lake/big/x.parquet"
SLACK = 2048  # bytes around the data of a column chunk


class Big:
    """A file with a fat column between two that are wanted, as its own footer describes it."""

    def __init__(self, data: bytes) -> None:
        self.bytes = len(data)
        self.metadata = pq.read_metadata(io.BytesIO(data))
        self.footer = TAIL_BYTES  # that much is read in one request; only a longer footer takes a second one
        assert self.metadata.serialized_size < TAIL_BYTES

    def column(self, name: str, groups: range = range(GROUPS)) -> int:
        """Bytes of a column in the file."""
        at = self.metadata.schema.names.index(name)
        return sum(self.metadata.row_group(group).column(at).total_compressed_size for group in groups)


@pytest.fixture(scope="module")
def big(lake: WatchedS3) -> Iterator[Big]:
    noise, sink = Random(1), io.BytesIO()
    schema = pa.schema([("id", pa.int64()), ("fat", pa.binary()), ("text", pa.string())])
    with pq.ParquetWriter(sink, schema, write_statistics=["id"]) as writer:
        for first in range(0, GROUPS * ROWS, ROWS):
            rows = range(first, first + ROWS)
            fat = [noise.randbytes(1500) for _ in rows]
            text = [noise.randbytes(20).hex() for _ in rows]
            writer.write_table(pa.table({"id": rows, "fat": fat, "text": text}, schema))
    assert len(sink.getvalue()) > reader.WHOLE_FILE_BYTES
    fsspec.filesystem("s3").pipe_file(FILE, sink.getvalue())
    yield Big(sink.getvalue())
    lake.forget()


@pytest.fixture
def planned(lake: WatchedS3, big: Big) -> Planned:
    lake.forget()
    return plan("s3://lake/big")


def test_planning_fetches_footers_only(lake: WatchedS3, big: Big, planned: Planned) -> None:
    assert planned.rows == GROUPS * ROWS
    assert lake.received(f"get {FILE}") == big.footer
    assert lake.count(f"get {FILE}")["get"] == 1


def test_a_shard_fetches_its_columns_of_its_row_group_and_the_footer(
    lake: WatchedS3, big: Big, planned: Planned
) -> None:
    lake.forget()
    with planned.reader(["text"]) as shards:
        assert sum(batch.num_rows for batch in shards.read(Shard(7 * ROWS, ROWS))) == ROWS
    assert lake.received(f"get {FILE}") <= big.footer + big.column("text", range(7, 8)) + SLACK
    assert big.column("fat", range(7, 8)) > 20 * big.column("text", range(7, 8)), "what was not fetched"


def test_ten_shards_of_a_row_group_fetch_it_once(lake: WatchedS3, big: Big, planned: Planned) -> None:
    lake.forget()
    with planned.reader(["id", "text"]) as shards:
        for tenth in range(10):
            shards.read(Shard(7 * ROWS + tenth * ROWS // 10, ROWS // 10))
    group = range(7, 8)
    wanted = big.column("id", group) + big.column("text", group)
    assert lake.received(f"get {FILE}") <= big.footer + wanted + SLACK
    assert lake.count(f"get {FILE}")["get"] == 1 + 2, "the footer, and one for each column"


def test_the_whole_dataset_is_fetched_once_in_few_requests(lake: WatchedS3, big: Big, planned: Planned) -> None:
    lake.forget()
    with planned.reader() as shards:
        for first in range(0, planned.rows, 100):
            shards.read(Shard(first, 100))
    assert lake.received(f"get {FILE}") <= big.bytes + big.footer + SLACK
    assert lake.count(f"get {FILE}")["get"] == 1 + 3 * GROUPS


def test_a_column_chunk_larger_than_the_buffer_is_fetched_once_in_pieces(
    lake: WatchedS3, big: Big, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BUFFER_BYTES", 2**17)
    lake.forget()
    with planned.reader(["fat"]) as shards:
        shards.read(Shard(0, ROWS))
    assert lake.count(f"get {FILE}")["get"] > 1 + 1
    assert lake.received(f"get {FILE}") <= big.footer + big.column("fat", range(1)) + SLACK


def test_a_whole_job_does_not_fetch_a_column_that_nobody_wants(
    lake: WatchedS3, big: Big, make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_process(monkeypatch, tmp_path / "state")
    sections: dict[str, Any] = {"input": {"path": "s3://lake/big"}, "output": {"keep_columns": ["id"]}}
    job = make_job(**sections, run={"shard_rows": ROWS // 5}, engine={"max_num_seqs": 64})
    lake.forget()
    assert run_here(job).rows.ok == GROUPS * ROWS
    fetched = lake.received(f"get {FILE}")
    # planned, looked at in some places before the run, and run
    assert fetched <= 3 * big.footer + 2 * big.column("text") + big.column("id") + SLACK * GROUPS
    assert fetched < big.bytes / 10
