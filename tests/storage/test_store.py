"""Publishing: whole or not at all, never twice, on disk and on an object store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchjobs.storage.object_store import ObjectStore
from batchjobs.storage.store import TMP, Store, open_store
from tests.faults import Faults
from tests.faulty_disk import faulty_disk


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "out") if request.param == "local" else f"memory://{tmp_path}/out")


def test_what_is_published_can_be_read(store: Store) -> None:
    assert store.publish("a/b.txt", b"hello")
    assert store.read("a/b.txt") == b"hello"
    assert store.names("a") == ["b.txt"]
    with store.open("a/b.txt") as stream:
        assert stream.read() == b"hello"


def test_a_name_that_is_taken_stays_as_it_is(store: Store) -> None:
    store.publish("a", b"first")
    assert not store.publish("a", b"second")
    assert store.read("a") == b"first"


def test_replace_replaces(store: Store) -> None:
    store.publish("a", b"first")
    assert store.publish("a", b"second", replace=True)
    assert store.read("a") == b"second"


def test_what_is_not_there_is_none_and_an_empty_list(store: Store) -> None:
    assert store.read("nothing") is None
    assert store.names("nowhere") == []
    store.delete(["nothing"])


def test_a_listing_shows_what_was_just_written(store: Store) -> None:
    store.publish("x/a", b"")
    assert store.names("x") == ["a"]
    store.publish("x/b", b"")
    assert store.names("x") == ["a", "b"]
    store.delete(["x/a"])
    assert store.names("x") == ["b"]


def test_a_write_that_fails_leaves_nothing_under_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.publish("a", b"data")
    monkeypatch.undo()
    assert store.read("a") is None
    assert store.names(TMP) == []


def test_data_is_on_disk_before_its_name_and_the_name_before_publish_returns(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "out"))
    store.publish("x/first", b"")  # makes the folders
    for replace, verb in ((False, "link"), (True, "replace")):
        faults = Faults()
        with faulty_disk(faults):
            store.publish("x/a", b"data", replace=replace)
        assert faults.operations == [
            "create tmp/a",
            "write tmp/a",
            "fsync tmp/a",
            f"{verb} x/a",
            "unlink tmp/a",
            "open out/x",
            "fsync out/x",
        ]


def test_a_new_folder_is_on_disk_before_anything_in_it(tmp_path: Path) -> None:
    faults = Faults()
    with faulty_disk(faults):
        open_store(str(tmp_path / "out")).publish("a", b"")
    root = tmp_path.name
    assert faults.operations[:9] == [
        f"mkdir {root}/out", f"open {tmp_path.parent.name}/{root}", f"fsync {tmp_path.parent.name}/{root}",
        "mkdir out/_batchjobs", f"open {root}/out", f"fsync {root}/out",
        "mkdir _batchjobs/tmp", "open out/_batchjobs", "fsync out/_batchjobs",
    ]  # fmt: skip


def test_a_failed_answer_of_an_s3_that_is_not_amazon_s_means_taken_too(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path}/out")
    assert isinstance(store, ObjectStore)
    answers = iter(["ConditionalRequestConflict", "ConditionalRequestConflict", "PreconditionFailed"])

    class S3Error(Exception):
        def __init__(self, code: str) -> None:
            self.response = {"Error": {"Code": code}}

    def pipe_file(*_: object, **__: object) -> None:
        raise OSError("as s3fs translates it") from S3Error(next(answers))

    minio = {"pipe_file": staticmethod(pipe_file), "cat_file": staticmethod(lambda _: b"another's")}
    store._fs = type("MinIO", (), minio)()
    assert not store.publish("a", b"")
    with pytest.raises(StopIteration):
        next(answers)
