"""Parquet footers: all that planning needs of a file, and how a file is recognised later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.data.dataset import FoundFile
from batchjobs.data.listing import is_local, threads_for
from batchjobs.errors import InputError
from schemas.plan import InputFile

TAIL_BYTES = 64 * 2**10  # of the first read; nearly every footer fits
MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
SIGNATURE_BYTES = 28  # nonce and tag after the footer of a file with encrypted columns and a plain footer
THRIFT_LIMIT = 2**31 - 1  # footers of files with many row groups and columns exceed the default limits
ReadRange = Callable[[int, int], bytes]  # offset and length in bytes


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer of one file says."""

    file: InputFile
    row_groups: tuple[tuple[int, float], ...]  # rows and average bytes per row (uncompressed) of each
    schema: pa.Schema  # one object for all files with an equal schema
    weighed: tuple[int, ...]  # bytes of the columns asked for, encoded but not compressed, in each row group


def read_footers(
    fs: fsspec.AbstractFileSystem,
    files: Sequence[FoundFile],
    threads: int = 16,
    weigh: Callable[[str], bool] = lambda _: False,
) -> list[Footer]:
    """Footers of the files, in their order; only the last 64 KiB are read, or the footer where it is larger.

    `weigh` says of which columns, by name, the bytes are added up.
    Raises InputError, naming the file, if it cannot be read, is not Parquet, is encrypted or has two columns of a name.
    """
    schemas: dict[bytes, pa.Schema] = {}

    def read(file: FoundFile) -> Footer:
        try:
            return _read_footer(fs, file, schemas, weigh)
        except Exception as error:  # each filesystem raises its own kinds
            raise InputError(f"Input {file.path} cannot be used: {error}") from error

    with ThreadPoolExecutor(threads_for(fs, threads)) as pool:
        return list(pool.map(read, files))


def cut_footer(read: ReadRange, size: int) -> bytes:
    """Footer of a file of `size` bytes: its Thrift message, the message's length and the magic bytes.

    Raises ValueError, saying why, if this is no Parquet file that can be read.
    """
    start = max(0, size - TAIL_BYTES)
    tail = _read_exactly(read, start, size - start)
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise ValueError("it is encrypted, which is not supported")
    if size < 12 or tail[-4:] != MAGIC:
        raise ValueError(f"it is not a Parquet file, or was cut short ({size} bytes, {MAGIC!r} is not at its end)")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size - 4:
        raise ValueError(f"it was cut short or damaged ({size} bytes, but a footer of {length} bytes)")
    return tail[-length:] if length <= len(tail) else _read_exactly(read, size - length, length)


def footer_sha256(footer: bytes) -> str:
    """Hexadecimal hash by which a planned file is recognised."""
    return hashlib.sha256(footer).hexdigest()


def parse_footer(footer: bytes) -> pq.ParquetFile:
    """Parquet file that consists of the footer only: it has metadata and Arrow schema, but no rows.

    Raises ValueError or OSError if the footer is damaged, and ValueError if columns are encrypted.
    """
    parsed = pq.ParquetFile(
        pa.BufferReader(MAGIC + footer),
        thrift_string_size_limit=THRIFT_LIMIT,
        thrift_container_size_limit=THRIFT_LIMIT,
    )
    if parsed.metadata.serialized_size + SIGNATURE_BYTES == len(footer) - 8:  # pyarrow would abort the process later
        raise ValueError("it has encrypted columns, which is not supported")
    return parsed


def average_row(metadata: pq.FileMetaData, row_group: int) -> tuple[int, float]:
    """Rows of a row group, and their average size in bytes, encoded but not compressed."""
    group = metadata.row_group(row_group)
    return group.num_rows, group.total_byte_size / max(1, group.num_rows)


def _read_exactly(read: ReadRange, start: int, length: int) -> bytes:
    data = read(start, length)
    if len(data) != length:
        raise ValueError(f"it changed while it was read ({length} bytes wanted at {start}, {len(data)} came)")
    return data


def _read_footer(
    fs: fsspec.AbstractFileSystem, file: FoundFile, schemas: dict[bytes, pa.Schema], weigh: Callable[[str], bool]
) -> Footer:
    footer = _fetch(fs, file)
    parsed = parse_footer(footer)
    metadata, schema = parsed.metadata, parsed.schema_arrow.remove_metadata()
    row_groups = tuple(average_row(metadata, number) for number in range(metadata.num_row_groups))
    return Footer(
        file=InputFile(
            name=file.name,
            path=file.path,
            size=file.size,
            footer_sha256=footer_sha256(footer),
            etag=file.etag,
            row_groups=[rows for rows, _ in row_groups],
            partitions={key: value for key, value in file.partitions.items() if value is not None},
        ),
        row_groups=row_groups,
        schema=_intern(schema, schemas),
        weighed=_weighed(metadata, [name for name in schema.names if weigh(name)]),
    )


def _weighed(metadata: pq.FileMetaData, names: list[str]) -> tuple[int, ...]:
    """Bytes of these columns in each row group: of all that is nested in them, too."""
    if not names:
        return (0,) * int(metadata.num_row_groups)
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    leaves = [i for i, path in enumerate(paths) if any(path == name or path.startswith(f"{name}.") for name in names)]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return tuple(sum(group.column(leaf).total_uncompressed_size for leaf in leaves) for group in groups)


def read_range(fs: fsspec.AbstractFileSystem, path: str, start: int, length: int) -> bytes:
    """Bytes of a file in one request; fewer where the file ends."""
    return bytes(fs.cat_file(path, start=start, end=start + length))  # by name: S3's second argument is a version


def _fetch(fs: fsspec.AbstractFileSystem, file: FoundFile) -> bytes:
    if not is_local(fs):
        return cut_footer(lambda start, length: read_range(fs, file.path, start, length), file.size)
    with open(file.path, "rb", buffering=0) as local:  # no layers: ten thousand files in seconds

        def read(start: int, length: int) -> bytes:
            local.seek(start)
            return local.read(length)

        return cut_footer(read, file.size)


def _intern(schema: pa.Schema, schemas: dict[bytes, pa.Schema]) -> pa.Schema:
    key = schema.serialize().to_pybytes()
    if key not in schemas:
        _refuse_duplicates(schema.names)
        return schemas.setdefault(key, pa.schema([_without_field_id(field) for field in schema]))
    return schemas[key]


def _refuse_duplicates(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"it has several columns named {', '.join(map(repr, twice))}; names must be unique")


def _without_field_id(field: pa.Field) -> pa.Field:
    """The field without its number in the file, which differs between files and says nothing about values."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != b"PARQUET:field_id"}
    return field.remove_metadata().with_metadata(metadata or None)
