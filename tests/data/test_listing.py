"""Which files a path gives, and their hive columns."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from batchjobs.data.dataset import find_files, hive_columns
from batchjobs.data.footers import read_footers
from batchjobs.errors import InputError
from tests.data.files import TABLE, parquet_bytes, write


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
