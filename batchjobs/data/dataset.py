"""Which files a dataset is made of, and the one schema that they all fit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import has_magic
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa
from pyarrow import types

from batchjobs.data.filesystem import open_url, told
from batchjobs.data.listing import PARQUET_SUFFIXES, Info, is_local, list_folder, list_glob
from batchjobs.errors import InputError, InputMissing

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the dataset, as the listing shows it."""

    name: str  # path below the dataset's root, `/` between folders
    path: str  # as its filesystem names it
    size: int  # bytes
    etag: str | None
    partitions: dict[str, str | None]  # hive columns in the order of the folders; None is null


def find_files(
    path: str | list[str], storage_options: dict[str, Any]
) -> tuple[fsspec.AbstractFileSystem, list[FoundFile]]:
    """Files of a dataset sorted by path, each once, with the filesystem that they are on.

    `path` is a file, a folder (all `.parquet` and `.parq` files below it), a glob or a list of these. Names that begin
    with `_` or `.` are ignored, of files and of folders, below the folder or the literal part of the glob. Every
    `key=value` folder anywhere in a path is a hive column; the innermost wins.
    Raises InputMissing if a path gives no file, InputError if it cannot be listed or the files differ in their hive
    columns.
    """
    urls = [path] if isinstance(path, str) else path
    fs, places = _open_all(urls, storage_options)
    roots: list[list[str]] = []
    infos: dict[str, Info] = {}
    for url, place in zip(urls, places, strict=True):
        root, found = _look(fs, url, place)
        roots.append(root.rstrip("/").split("/") if root else [])
        infos.update({info["name"]: info for info in found})
    depth = next((i for i, level in enumerate(zip(*roots, strict=False)) if len(set(level)) > 1), min(map(len, roots)))
    files = [_found_file(infos[name], depth) for name in sorted(infos)]
    _check_hive_columns(files)
    return fs, files


def hive_columns(files: Sequence[FoundFile]) -> list[str]:
    """Names of the dataset's hive columns, outer folders first; all files have the same."""
    return list(files[0].partitions) if files else []


def _open_all(urls: list[str], storage_options: dict[str, Any]) -> tuple[fsspec.AbstractFileSystem, list[str]]:
    if not urls:
        raise InputError("input.path: found an empty list; allowed: a file, folder, glob, or a list of at least one.")
    try:
        opened = [open_url(url, storage_options) for url in urls]
    except Exception as error:  # a missing package, an unknown protocol, wrong options: each its own kind
        raise InputError(f"input.path: {', '.join(urls)} cannot be opened: {error}") from error
    fs = opened[0][0]
    for url, (other, _) in zip(urls, opened, strict=True):
        if other != fs:
            raise InputError(f"input.path: {url} is not on the filesystem of {urls[0]}; allowed: one for all paths.")
    fs.invalidate_cache()  # an earlier listing would hide what has arrived or gone since
    return fs, [os.path.normpath(place) if is_local(fs) else place.rstrip("/") for _, place in opened]


def _look(fs: fsspec.AbstractFileSystem, url: str, place: str) -> tuple[str, list[Info]]:
    """Folder from which the names of one input path count, and its files."""
    try:
        root, found = _list(fs, place)
    except FileNotFoundError as error:
        raise InputMissing(f"Input {url} does not exist (looked for {error.filename or place}).") from error
    except Exception as error:  # filesystems raise their own kinds for wrong credentials, no network ...
        raise InputError(f"Input {url} cannot be listed: {told(error)}") from error
    if not found:
        wanted = "a file that matches" if has_magic(place) else f"files ending in {' or '.join(PARQUET_SUFFIXES)} below"
        raise InputMissing(f"Input {url} has nothing to read. Looked for {wanted} {place}; _* and .* are ignored.")
    return root, found


def _list(fs: fsspec.AbstractFileSystem, place: str) -> tuple[str, list[Info]]:
    try:
        info = fs.info(place)  # first, as a name may hold characters that are magic in a glob
    except FileNotFoundError:
        if not has_magic(place):
            raise
        return list_glob(fs, place)
    if info["type"] == "directory":
        return place, list_folder(fs, place)
    return place.rpartition("/")[0], [{**info, "name": place}]


def _found_file(info: Info, depth: int) -> FoundFile:
    segments = info["name"].split("/")
    if info.get("size") is None:
        raise InputError(f"Input {info['name']}: its filesystem does not tell its size, which reading Parquet needs.")
    return FoundFile(
        name="/".join(segments[depth:]).lstrip("/"),
        path=info["name"],
        size=info["size"],
        etag=info.get("ETag") or info.get("etag"),
        partitions=dict(_hive_pairs(segments[:-1])),
    )


def _hive_pairs(folders: list[str]) -> Iterator[tuple[str, str | None]]:
    for key, equals, value in (folder.partition("=") for folder in folders):
        if key and equals:
            yield unquote(key), None if value == HIVE_NULL else unquote(value)


def _check_hive_columns(files: list[FoundFile]) -> None:
    first = files[0]
    for file in files:
        if file.partitions.keys() != first.partitions.keys():
            raise InputError(
                f"Input {file.path} lies in key=value folders for {', '.join(file.partitions) or 'no column'}, but "
                f"{first.path} for {', '.join(first.partitions) or 'no column'}. All files need the same columns."
            )


@dataclass(frozen=True, slots=True)
class _Column:
    field: pa.Field
    file: str  # the one that gave the type
    schemas: int = 1  # how many have it


def unify_schemas(pairs: Iterable[tuple[str, pa.Schema]], hive_columns: Iterable[str] = ()) -> pa.Schema:
    """Schema that all files fit: columns in order of appearance, then the hive columns as strings.

    `pairs` are the file names with their schemas. A column that a file lacks is nullable; null widens to any type and
    an integer to the smallest type that holds both, also within lists and structs.
    Raises InputError, naming file and column, for any other difference and for a hive column that a file has as well.
    """
    columns: dict[str, _Column] = {}
    seen: dict[int, pa.Schema] = {}  # equal schemas are one object: a thousand files cost one look
    for file, schema in pairs:
        if id(schema) not in seen:
            seen[id(schema)] = schema
            for field in schema:
                columns[field.name] = _merge(columns.get(field.name), field, file)
    fields = [c.field if c.schemas == len(seen) else c.field.with_nullable(True) for c in columns.values()]
    return pa.schema([*fields, *_hive_fields(columns, hive_columns)])


def _hive_fields(columns: dict[str, _Column], names: Iterable[str]) -> Iterator[pa.Field]:
    for name in names:
        if name in columns:
            raise InputError(
                f"Input {columns[name].file} has a column {name!r} and lies in a {name}=... folder, so two columns "
                f"would have that name. Rename the column or the folder."
            )
        yield pa.field(name, pa.string())


def _merge(earlier: _Column | None, field: pa.Field, file: str) -> _Column:
    if earlier is None:
        return _Column(field, file)
    known = earlier.field
    merged = common_type(known.type, field.type)
    if merged is None:
        raise InputError(
            f"Input {file}: column {field.name!r} is {field.type}; expected {known.type}, as in {earlier.file}. "
            f"{_why_not(known.type, field.type)} Rewrite one of the files."
        )
    source = earlier.file if merged == known.type else file
    nullable = known.nullable or field.nullable
    return _Column(known.with_type(merged).with_nullable(nullable), source, earlier.schemas + 1)


def _why_not(one: pa.DataType, other: pa.DataType) -> str:
    pair = (one, other)
    if any(map(types.is_integer, pair)) and any(map(types.is_floating, pair)):
        return "Integers and floating point are not mixed, as large integers would change."
    if all(map(types.is_integer, pair)):
        return "No integer type holds both."
    return "Only missing columns, nulls and narrower integers are adapted."


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Type that holds every value of both unchanged, or None."""
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_integer(one) and types.is_integer(other):
        return _common_integer(one, other)
    if types.is_struct(one) and types.is_struct(other):
        return _common_struct(one.fields, other.fields)
    for is_list, make in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list)):
        if is_list(one) and is_list(other):
            item = _common_field(one.value_field, other.value_field)
            return None if item is None else make(item)
    return None


def _common_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    signed = types.is_signed_integer(one) or types.is_signed_integer(other)
    bits = max(_bits(one, signed), _bits(other, signed))
    sizes = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()} if signed else {}
    return sizes.get(bits) if signed else max(one, other, key=lambda t: t.bit_width)


def _bits(integer: pa.DataType, signed: bool) -> int:
    """Width in bits that the type needs; as a signed one, an unsigned type needs the next width."""
    return int(integer.bit_width) * (2 if signed and types.is_unsigned_integer(integer) else 1)


def _common_struct(one: list[pa.Field], other: list[pa.Field]) -> pa.DataType | None:
    if [field.name for field in one] != [field.name for field in other]:
        return None
    fields = [_common_field(a, b) for a, b in zip(one, other, strict=True)]
    return None if any(field is None for field in fields) else pa.struct(fields)


def _common_field(one: pa.Field, other: pa.Field) -> pa.Field | None:
    merged = common_type(one.type, other.type)
    return None if merged is None else one.with_type(merged).with_nullable(one.nullable or other.nullable)
