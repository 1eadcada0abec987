"""List Parquet files in a folder or by a glob, on any fsspec filesystem, without leaving anything out.

`fs.glob` and the `fs.find` of hierarchical filesystems skip, without a word, folders that they fail to list. Here every
failure is raised: a night must not lose rows because one listing had no permission or no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

PARQUET_SUFFIXES = (".parquet", ".parq")
THREADS = 16
Info = dict[str, Any]  # what a filesystem says of a file or folder: name, type, size and more


def is_local(fs: fsspec.AbstractFileSystem) -> bool:
    """Whether paths of this filesystem can be given to the operating system."""
    return isinstance(fs, LocalFileSystem)


def threads_for(fs: fsspec.AbstractFileSystem, threads: int) -> int:
    """`threads` where many may use the filesystem at a time, else 1 (FTP, archives ...)."""
    return threads if is_local(fs) or fs.async_impl else 1


def list_folder(fs: fsspec.AbstractFileSystem, root: str) -> list[Info]:
    """The `.parquet` and `.parq` files below a folder, hidden ones left out."""
    return _parquet_below(fs, root, [root])


def list_glob(fs: fsspec.AbstractFileSystem, pattern: str) -> tuple[str, list[Info]]:
    """Folder of the part before the first magic character, and the files that match, whatever their suffix.

    Of a matching folder come the Parquet files below it; a pattern with `**` inside matches files only.
    """
    root, segments = _split(pattern)
    if "**" in segments:
        matches = re.compile(glob_translate(pattern)).match
        return root, [i for i in _below(fs, [root]) if matches(i["name"]) and not _is_hidden(i, root)]
    files, folders = [], [root]
    for segment in segments:
        wanted = re.compile(glob_translate(segment)).match
        entries = [i for i in _children(fs, folders) if wanted(_base_name(i)) and not _is_hidden(i, root)]
        files = [info for info in entries if info["type"] != "directory"]
        folders = [info["name"] for info in entries if info["type"] == "directory"]
    return root, [*files, *_parquet_below(fs, root, folders)]


def _split(pattern: str) -> tuple[str, list[str]]:
    """Folder before the first magic segment, and the segments from there on. A `**` at the end says nothing new."""
    segments = re.sub(r"(/\*\*)+$", "", pattern).split("/")
    magic = next((i for i, segment in enumerate(segments) if set(segment) & set("*?[")), len(segments))
    return "/".join(segments[:magic]) or pattern[: pattern.startswith("/")], segments[magic:]


def _parquet_below(fs: fsspec.AbstractFileSystem, root: str, folders: list[str]) -> list[Info]:
    return [i for i in _below(fs, folders) if i["name"].endswith(PARQUET_SUFFIXES) and not _is_hidden(i, root)]


def _below(fs: fsspec.AbstractFileSystem, folders: list[str]) -> Iterator[Info]:
    """All files below the folders."""
    if _lists_flat(fs):
        for folder in folders:
            yield from fs.find(folder, detail=True).values()
        return
    while folders:
        entries = _children(fs, folders)
        yield from (info for info in entries if info["type"] != "directory")
        folders = [info["name"] for info in entries if info["type"] == "directory"]


def _lists_flat(fs: fsspec.AbstractFileSystem) -> bool:
    """Whether `find` is one listing of all keys with a prefix (object stores) and not a walk."""
    inherited = (fsspec.AbstractFileSystem.find, LocalFileSystem.find)
    if isinstance(fs, AsyncFileSystem):
        return type(fs)._find is not AsyncFileSystem._find
    return type(fs).find not in inherited


def _children(fs: fsspec.AbstractFileSystem, folders: list[str]) -> list[Info]:
    """Entries of the folders, without the markers that stand for the folders themselves."""

    def children(folder: str) -> list[Info]:
        if is_local(fs):
            return _local_children(folder)
        entries = ({**info, "name": info["name"].rstrip("/")} for info in fs.ls(folder, detail=True))
        return [info for info in entries if info["name"] != folder.rstrip("/")]

    with ThreadPoolExecutor(threads_for(fs, THREADS)) as pool:
        return [info for entries in pool.map(children, folders) for info in entries]


def _local_children(folder: str) -> list[Info]:
    """As `fs.ls`, but a link is what it points to, and what is ignored anyway is not looked at."""
    with os.scandir(folder) as entries:
        found = [_local_child(entry) for entry in entries if not entry.name.startswith(("_", "."))]
    return [info for info in found if info is not None]


def _local_child(entry: os.DirEntry[str]) -> Info | None:
    if entry.is_dir():
        return {"name": entry.path, "type": "directory"}
    if entry.is_file():
        return {"name": entry.path, "type": "file", "size": os.stat(entry.path).st_size}
    if entry.name.endswith(PARQUET_SUFFIXES):  # a link to nothing, a pipe, a device: a planned row must not hang there
        raise FileNotFoundError(2, "not a regular file", entry.path)
    return None


def _base_name(info: Info) -> str:
    return str(info["name"]).rsplit("/", 1)[-1]


def _is_hidden(info: Info, root: str) -> bool:
    below = info["name"][len(root) :].lstrip("/")
    return any(segment.startswith(("_", ".")) for segment in below.split("/"))
