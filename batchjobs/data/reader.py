"""Read the rows of shards: a row group is decoded once and streamed in batches, however many shards it spans."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.data.footers import THRIFT_LIMIT, average_row, cut_footer, footer_sha256, parse_footer, read_range
from batchjobs.data.listing import is_local
from batchjobs.errors import BatchjobsError, InputChanged
from schemas.plan import InputFile, Shard

BATCH_BYTES = 16 * 2**20
BATCH_ROWS = 4096
BUFFER_BYTES = 64 * 2**20  # shared by the columns that are read side by side
WHOLE_FILE_BYTES = 8 * 2**20  # a remote file up to here costs less in one request than in one for each column


class ShardReader:
    """Reads shards of the planned dataset, best in ascending order; going back decodes a row group again.

    `paths` are where the planned `files` are now, `schema` is the dataset's and `columns` (one or more) are the wanted
    ones. Each batch holds at most 4096 rows and about 16 MiB; a shard's batches may be slices of such a batch, which
    stays in memory as long as they do. Not for use by several threads at a time.
    """

    def __init__(
        self,
        fs: fsspec.AbstractFileSystem,
        paths: Sequence[str],
        files: Sequence[InputFile],
        schema: pa.Schema,
        columns: Sequence[str],
    ) -> None:
        self._fs, self._paths, self._files = fs, paths, files
        fs.invalidate_cache()  # an earlier listing would hide that a file has another size by now
        self._schema = pa.schema([schema.field(name) for name in columns])
        self._groups = [(file, group) for file in range(len(files)) for group in range(len(files[file].row_groups))]
        self._first_rows = [0, *accumulate(files[file].row_groups[group] for file, group in self._groups)]
        self._open: tuple[int, pq.ParquetFile] | None = None
        self._stream: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None  # what is left of the batch that the stream gave last
        self._row = self._first_rows[-1]  # the next row that comes; at the end, so the first read seeks

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the open file; a later `read` opens it again."""
        self._stream, self._batch, self._row = iter(()), None, self._first_rows[-1]
        if self._open is not None:
            self._open[1].close(force=True)
            self._open = None

    def read(self, shard: Shard) -> list[pa.RecordBatch]:
        """The shard's rows with the wanted columns, types as in the dataset's schema.

        Raises InputChanged if a file is not what was planned, BatchjobsError if it cannot be read.
        """
        try:
            self._seek(shard.first_row)
            return list(self._take(shard.rows))
        except BatchjobsError:
            self.close()
            raise
        except Exception as error:  # each filesystem raises its own kinds
            path = self._paths[self._groups[self._group_of(self._row)][0]]
            self.close()
            raise BatchjobsError(
                f"Rows {shard.first_row} to {shard.first_row + shard.rows - 1} could not be read from {path}: {error}. "
                f"What is committed stays; run the same command again when the file can be read."
            ) from error

    def _group_of(self, row: int) -> int:
        return min(bisect.bisect_right(self._first_rows, row), len(self._groups)) - 1

    def _seek(self, row: int) -> None:
        group = self._group_of(row)
        if row < self._row or self._row < self._first_rows[group]:
            self._stream, self._batch, self._row = self._decode_from(group), None, self._first_rows[group]
        for _ in self._take(row - self._row):
            pass

    def _take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The next rows of the dataset."""
        while rows:
            batch = self._batch if self._batch is not None else next(self._stream)
            piece = batch.slice(0, rows)
            self._batch = batch.slice(rows) if rows < batch.num_rows else None
            self._row += piece.num_rows
            rows -= piece.num_rows
            yield piece

    def _decode_from(self, group: int) -> Iterator[pa.RecordBatch]:
        for number in range(group, len(self._groups)):
            yield from self._decode(*self._groups[number])

    def _decode(self, file: int, group: int) -> Iterator[pa.RecordBatch]:
        parquet = self._parquet(file)
        present = [name for name in self._schema.names if name in parquet.schema_arrow.names]
        done = 0
        for batch_rows in _batch_sizes(average_row(parquet.metadata, group)[1]):
            try:
                batches = parquet.iter_batches(batch_rows, [group], present, use_threads=False)
                for batch in _without_first(batches, done):
                    conformed = self._conform(batch, self._files[file])
                    done += batch.num_rows
                    yield conformed
                break
            except pa.ArrowNotImplementedError:  # a nested column with over 2 GiB of text in one batch
                if batch_rows == 1:
                    raise
        if done != (planned := self._files[file].row_groups[group]):
            raise InputChanged(
                f"Input {self._paths[file]}: row group {group} has {done} rows, {planned} were planned. What is "
                f"committed stays; put the planned file back, or plan the job anew with another output.path."
            )

    def _conform(self, batch: pa.RecordBatch, file: InputFile) -> pa.RecordBatch:
        """The batch with the dataset's columns and types."""
        arrays = []
        for field in self._schema:
            index = batch.schema.get_field_index(field.name)
            if index >= 0:
                array = batch.column(index)
                arrays.append(array if array.type == field.type else array.cast(field.type))
            elif field.name in file.partitions:
                arrays.append(pa.repeat(pa.scalar(file.partitions[field.name], field.type), batch.num_rows))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _parquet(self, file: int) -> pq.ParquetFile:
        if self._open is None or self._open[0] != file:
            if self._open is not None:
                self._open[1].close(force=True)
                self._open = None
            self._open = file, open_planned(self._fs, self._paths[file], self._files[file])
        return self._open[1]


def open_planned(fs: fsspec.AbstractFileSystem, path: str, planned: InputFile) -> pq.ParquetFile:
    """Open a file for reading; raises InputChanged if its size or footer is not what was planned."""
    try:
        source = _open_source(fs, path, planned.size)
    except FileNotFoundError as error:
        raise _changed(path, "it is gone") from error
    try:
        return _open_checked(source, path, planned)
    except BaseException:
        source.close()
        raise


def _open_source(fs: fsspec.AbstractFileSystem, path: str, planned_size: int) -> Any:
    if is_local(fs):
        return pa.OSFile(path)  # not a memory map: a file that shrinks would kill the process
    if planned_size <= WHOLE_FILE_BYTES:
        return pa.BufferReader(read_range(fs, path, 0, planned_size + 1))  # one more shows whether it has grown
    # pyarrow reads buffers of its own; another layer that reads ahead would fetch everything several times.
    return pa.PythonFile(fs.open(path, "rb", **({"cache_type": "none"} if fs.async_impl else {})), mode="r")


def _open_checked(source: Any, path: str, planned: InputFile) -> pq.ParquetFile:
    def read(start: int, length: int) -> bytes:
        source.seek(start)
        return bytes(source.read(length))

    size = source.size()
    if size != planned.size:
        raise _changed(path, f"it has {size} bytes, {planned.size} were planned")
    try:
        footer = cut_footer(read, size)
    except ValueError as error:
        raise _changed(path, str(error)) from error
    if footer_sha256(footer) != planned.footer_sha256:
        raise _changed(path, "its footer differs, so it was written anew")
    metadata = parse_footer(footer).metadata
    return pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,  # or all that is wanted of a row group would be held in memory
        buffer_size=max(2**16, min(2**22, BUFFER_BYTES // max(1, metadata.num_columns))),
        thrift_string_size_limit=THRIFT_LIMIT,
        thrift_container_size_limit=THRIFT_LIMIT,
        page_checksum_verification=True,
    )


def _changed(path: str, found: str) -> InputChanged:
    return InputChanged(
        f"Input {path} is not the file that was planned: {found}. Nothing of it was read and what is committed stays. "
        f"Put the planned file back and run again, or plan the job anew with another output.path."
    )


def _batch_sizes(row_bytes: float) -> Iterator[int]:
    """Rows per batch, to be tried one after the other: the averages may hide a few huge rows."""
    rows = max(1, int(min(BATCH_ROWS, BATCH_BYTES / max(1.0, row_bytes))))
    while rows > 1:
        yield rows
        rows //= 16
    yield 1


def _without_first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch.slice(rows)
        rows = max(0, rows - batch.num_rows)
        if kept.num_rows:
            yield kept
