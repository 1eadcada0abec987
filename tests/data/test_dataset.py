"""Finding files, reading footers and unifying schemas."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from batchjobs.data.dataset import find_files, hive_columns, unify_schemas
from batchjobs.data.footers import TAIL_BYTES, read_footers
from batchjobs.errors import InputError

TABLE = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})


def write(path: Path, table: pa.Table = TABLE, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def names(path: str | list[str]) -> list[str]:
    return [file.name for file in find_files(path, {})[1]]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("b.parquet", "a.parq", "sub/c.parquet", "sub/deep/d.parquet", "notes.txt"):
        write(tmp_path / "lake" / name)
    for hidden in ("_SUCCESS.parquet", ".x.parquet", "_temporary/x.parquet", "sub/.cache/deep/x.parquet"):
        write(tmp_path / "lake" / hidden)
    return tmp_path / "lake"


def test_a_folder_gives_the_parquet_files_below_it_in_path_order_without_hidden_ones(lake: Path) -> None:
    assert names(str(lake)) == ["a.parq", "b.parquet", "sub/c.parquet", "sub/deep/d.parquet"]
    assert names(f"{lake}/") == names(f"file://{lake}") == names(f"{lake}/sub/../") == names(str(lake))


@pytest.mark.parametrize("name", ["notes.txt", "_SUCCESS.parquet", "_temporary/x.parquet"])
def test_a_file_that_is_named_is_taken_whatever_its_name(lake: Path, name: str) -> None:
    assert names(f"{lake}/{name}") == [Path(name).name]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.parquet", ["b.parquet"]),
        ("?.par*", ["a.parq", "b.parquet"]),
        ("[!b].*", ["a.parq"]),
        ("su*", ["sub/c.parquet", "sub/deep/d.parquet"]),
        ("*/*.parquet", ["sub/c.parquet"]),
        ("**", ["a.parq", "b.parquet", "sub/c.parquet", "sub/deep/d.parquet"]),
        ("**/*.parquet", ["b.parquet", "sub/c.parquet", "sub/deep/d.parquet"]),
        ("s*/**", ["sub/c.parquet", "sub/deep/d.parquet"]),
        ("s*/**/d.*", ["sub/deep/d.parquet"]),
        ("*.txt", ["notes.txt"]),
    ],
)
def test_a_glob_gives_the_files_it_matches_and_those_below_matching_folders(
    lake: Path, pattern: str, found: list[str]
) -> None:
    assert names(f"{lake}/{pattern}") == found


def test_a_name_with_magic_characters_is_found_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "day[1]" / "x*.parquet")
    write(tmp_path / "day1" / "other.parquet")
    assert names(f"{tmp_path}/day[1]") == names(f"{tmp_path}/day[1]/x*.parquet") == ["x*.parquet"]


def test_a_list_gives_each_file_once_with_names_below_the_common_folder(lake: Path) -> None:
    assert names([f"{lake}/sub/deep", f"{lake}/*.parquet", f"{lake}/b.parquet"]) == ["b.parquet", "sub/deep/d.parquet"]


def test_links_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "x.parquet")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "dt=1").symlink_to(tmp_path / "elsewhere")
    (fs, [file]) = find_files(str(tmp_path / "lake"), {})
    assert (file.name, file.size, file.partitions) == ("dt=1/x.parquet", fs.size(file.path), {"dt": "1"})


def test_hive_folders_anywhere_in_the_path_are_columns_with_decoded_values(tmp_path: Path) -> None:
    write(tmp_path / "dt=2026-11-28" / "docs" / "lang=C%2B%2B" / "empty=" / "x.parquet")
    expected = {"dt": "2026-11-28", "lang": "C++", "empty": ""}
    for path in (
        "dt=2026-11-28/docs",
        "dt=2026-11-28/docs/lang=*/*",
        "dt=2026-11-28/docs/lang=C%2B%2B/empty=/x.parquet",
    ):
        [file] = find_files(f"{tmp_path}/{path}", {})[1]
        assert file.partitions == expected


def test_the_hive_default_partition_is_null_and_still_a_column(tmp_path: Path) -> None:
    write(tmp_path / "lang=__HIVE_DEFAULT_PARTITION__" / "x.parquet")
    fs, found = find_files(str(tmp_path), {})
    assert hive_columns(found) == ["lang"]
    assert read_footers(fs, found)[0].file.partitions == {}


def test_files_in_different_kinds_of_hive_folders_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "dt=1" / "x.parquet")
    write(tmp_path / "y.parquet")
    with pytest.raises(
        InputError, match=r"y\.parquet lies in key=value folders for no column, but .*x\.parquet for dt"
    ):
        find_files(str(tmp_path), {})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "does not exist"),
        ("nowhere/*.parquet", "does not exist"),
        ("*.csv", "nothing to read. Looked for a file that matches"),
        ("empty", r"nothing to read. Looked for files ending in \.parquet or \.parq below"),
    ],
)
def test_a_path_that_gives_no_file_is_refused_by_name(lake: Path, path: str, message: str) -> None:
    (lake / "empty").mkdir()
    with pytest.raises(InputError, match=f"{path.replace('*', '[*]')}.*{message}"):
        find_files([str(lake), f"{lake}/{path}"], {})


def test_paths_that_cannot_be_opened_together_are_refused(lake: Path) -> None:
    with pytest.raises(InputError, match="nosuch://x cannot be opened: Protocol not known"):
        find_files("nosuch://x", {})
    with pytest.raises(InputError, match="not on the filesystem of"):
        find_files([str(lake), "memory://lake"], {})
    with pytest.raises(InputError, match="empty list"):
        find_files([], {})


class Patchy(MemoryFileSystem):  # type: ignore[misc]
    """A store with folders, of which it may fail to list one. `bytes_read` counts."""

    protocol = "patchy"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    bytes_read = 0
    find = fsspec.AbstractFileSystem.find

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("patchy://", "memory://")))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if path.endswith("locked"):
            raise PermissionError(f"no permission for {path}")
        return super().ls(path, detail, **kwargs)

    def cat_file(self, path: str, version_id: str | None = None, *, start: int, end: int) -> bytes:  # as of s3fs
        assert version_id is None
        data: bytes = super().cat_file(path, start, end)
        Patchy.bytes_read += len(data)
        return data


fsspec.register_implementation("patchy", Patchy, clobber=True)


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("path", ["patchy://lake", "patchy://lake/*", "patchy://lake/*/*.parquet", "patchy://lake/**"])
def test_a_folder_that_cannot_be_listed_is_refused_and_never_left_out(path: str) -> None:
    fs = fsspec.filesystem("patchy")
    fs.pipe({f"/lake/{name}/x.parquet": parquet_bytes(TABLE) for name in ("open", "locked")})
    with pytest.raises(InputError, match="cannot be listed: PermissionError: no permission for /lake/locked"):
        find_files(path, {})


@pytest.mark.parametrize("protocol", ["memory", "patchy"])
def test_any_fsspec_url_will_do(protocol: str) -> None:
    fs = fsspec.filesystem(protocol)
    fs.pipe(
        {f"/any/docs/dt={day}/{name}": parquet_bytes(TABLE) for day in (1, 2) for name in ("x.parquet", "_y.parquet")}
    )
    for path in ("any/docs", "any/docs/", "any/docs/dt=*", "any/docs/dt=?/*.parquet", "any/docs/**/x.*"):
        fs, found = find_files(f"{protocol}://{path}", {})
        assert [file.name for file in found] == ["dt=1/x.parquet", "dt=2/x.parquet"]
    assert [footer.row_groups[0][0] for footer in read_footers(fs, found)] == [3, 3]


def footer_of(path: Path) -> Any:
    return read_footers(*find_files(str(path), {}))[0]


def test_a_footer_tells_rows_sizes_and_schema(tmp_path: Path) -> None:
    table = pa.table({"text": ["x" * 1000] * 10})
    path = write(tmp_path / "x.parquet", table, row_group_size=4, use_dictionary=False, write_statistics=False)
    footer = footer_of(path)
    assert footer.file.row_groups == [4, 4, 2] == [rows for rows, _ in footer.row_groups]
    assert all(1000 < size < 1100 for _, size in footer.row_groups)
    assert footer.schema == table.schema
    assert footer.file.size == path.stat().st_size


def test_a_file_is_recognised_by_its_footer(tmp_path: Path) -> None:
    hashes = [
        footer_of(write(tmp_path / "x.parquet", pa.table({"a": value}))).file.footer_sha256
        for value in ([1, 2], [1, 3], [1, 2])
    ]
    assert hashes[0] == hashes[2] != hashes[1]


def test_only_the_tail_of_a_file_is_read_and_a_large_footer_whole() -> None:
    fs = fsspec.filesystem("patchy")
    noise = pa.table({"text": [str(hash((i, "noise")) ** 9) for i in range(20_000)]})
    wide = pa.table({f"a_rather_long_column_name_{i}": [i] for i in range(1000)})
    for table, least, most in ((noise, TAIL_BYTES, TAIL_BYTES), (wide, TAIL_BYTES, 10 * TAIL_BYTES)):
        fs.pipe("/tails/x.parquet", parquet_bytes(table))
        Patchy.bytes_read = 0
        assert read_footers(*find_files("patchy://tails/x.parquet", {}))[0].schema == table.schema
        assert least <= Patchy.bytes_read <= most


def test_equal_schemas_are_one_object(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.parquet", TABLE.replace_schema_metadata({"pandas": name}))
    schemas = [footer.schema for footer in read_footers(*find_files(str(tmp_path), {}))]
    assert schemas[0] is schemas[1] is schemas[2]
    assert schemas[0].metadata is None


def test_field_ids_are_dropped_and_other_field_metadata_is_kept(tmp_path: Path) -> None:
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7", "unit": "m"})
    assert footer_of(write(tmp_path / "x.parquet", pa.table([[1]], pa.schema([field])))).schema.field(0).metadata == {
        b"unit": b"m"
    }


GOOD = parquet_bytes(TABLE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a Parquet file, or was cut short \(0 bytes"),
        (b"PAR1", "cut short"),
        (b"id,text\n" * 100, "not a Parquet file"),
        (GOOD[:-10], "not a Parquet file, or was cut short"),
        (GOOD[-20:], "damaged"),
        (GOOD[:4] + b"\xff" * (len(GOOD) - 12) + GOOD[-8:], "cannot be used"),
    ],
)
def test_a_file_that_is_not_whole_parquet_is_refused_by_name(tmp_path: Path, data: bytes, message: str) -> None:
    write(tmp_path / "good.parquet")
    (tmp_path / "other.parquet").write_bytes(data)
    with pytest.raises(InputError, match=rf"other\.parquet.*{message}"):
        read_footers(*find_files(str(tmp_path), {}))


class PlainKms(pe.KmsClient):  # type: ignore[misc]
    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file_is_refused_by_name(tmp_path: Path, plaintext_footer: bool) -> None:
    config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["text"]}, plaintext_footer=plaintext_footer)
    properties = pe.CryptoFactory(lambda _: PlainKms()).file_encryption_properties(pe.KmsConnectionConfig(), config)
    path = write(tmp_path / "x.parquet", encryption_properties=properties)
    with pytest.raises(InputError, match=r"x\.parquet.*encrypted"):
        footer_of(path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"]))
    with pytest.raises(InputError, match=r"x\.parquet.*several columns named 'id'"):
        footer_of(path)


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
