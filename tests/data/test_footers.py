"""What a footer tells, and which files are refused."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest

from batchjobs.data.dataset import find_files
from batchjobs.data.footers import TAIL_BYTES, read_footers
from batchjobs.errors import InputError
from tests.data.files import TABLE, Patchy, parquet_bytes, write


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
