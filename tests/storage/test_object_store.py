"""An output on S3, over HTTP: whole or not at all, never twice, whatever happens to a request or its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from batchjobs.errors import StorageFailed
from batchjobs.storage.object_store import ObjectStore
from batchjobs.storage.store import open_store
from tests.watched_s3 import Kind, WatchedS3

LARGE = b"0123456789abcdef" * (11 * 2**16)  # 11 MiB: three parts of a multipart upload, where a part has 5 MiB


@pytest.fixture(autouse=True)
def _nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0)


@pytest.fixture
def store(lake: WatchedS3) -> Iterator[ObjectStore]:
    opened = open_store(f"s3://lake/{uuid4().hex}")
    assert isinstance(opened, ObjectStore)
    lake.forget()
    yield opened
    lake.forget()


@pytest.fixture
def in_parts(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of 10 MiB and more are uploaded in parts; by itself, s3fs does that from 100 MiB."""
    monkeypatch.setattr(store._fs, "pipe_file", partial(store._fs.pipe_file, chunksize=5 * 2**20))


def uploads_left() -> list[Any]:
    """Multipart uploads that nobody has completed or aborted."""
    answer = fsspec.filesystem("s3").call_s3("list_multipart_uploads", Bucket="lake")
    return list(answer.get("Uploads", []))


WRONG: list[tuple[Kind, int, str]] = [
    ("refuse", 500, "InternalError"),
    ("refuse", 503, "SlowDown"),
    ("refuse", 503, "ServiceUnavailable"),
    ("refuse", 429, "TooManyRequests"),
    ("refuse", 400, "RequestTimeout"),
    ("cut request", 0, ""),
    ("cut answer", 0, ""),
    ("lose answer", 0, ""),
]


@pytest.mark.parametrize(("kind", "status", "code"), WRONG)
def test_what_goes_wrong_twice_is_asked_a_third_time(
    lake: WatchedS3, store: ObjectStore, kind: Kind, status: int, code: str
) -> None:
    acts: dict[str, Callable[[], Any]] = {
        "put": lambda: store.publish("a", b"some data") and store.publish("b", b"", replace=True),
        "get": lambda: store.read("a") == b"some data",
        "list": lambda: store.names() == ["a", "b"],
        "delete": lambda: store.delete(["a"]) is None and store.names() == ["b"],
    }
    for operation, act in acts.items():
        lake.forget()
        if kind == "cut answer" and operation in ("put", "delete"):
            assert act(), "an answer without a body cannot be cut"
            continue
        fault = lake.fault(kind, operation, times=2, status=status, code=code)
        assert act(), operation
        assert len(fault.struck) == 2, operation


def test_a_server_that_stays_broken_is_asked_seven_times_and_then_told(lake: WatchedS3, store: ObjectStore) -> None:
    fault = lake.fault("refuse", "put", times=1000, status=500, code="InternalError")
    with pytest.raises(StorageFailed, match=rf"cannot write {store.url}/a: InternalError: .*"):
        store.publish("a", b"data")
    assert len(fault.struck) == 7
    lake.forget()
    assert store.names() == []


@pytest.mark.parametrize("where", ["environment", "options"])
def test_retries_that_the_user_has_set_are_kept(lake: WatchedS3, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    options: dict[str, Any] = {}
    if where == "environment":
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    else:
        options = {"config_kwargs": {"retries": {"total_max_attempts": 2}}}
    store = open_store("s3://lake/mine", {**options, "skip_instance_cache": True})
    lake.forget()
    fault = lake.fault("refuse", "put", times=1000)
    with pytest.raises(StorageFailed):
        store.publish("a", b"data")
    assert len(fault.struck) == 2
    lake.forget()


def test_create_if_absent_holds_for_an_object_of_one_put(lake: WatchedS3, store: ObjectStore) -> None:
    assert store.publish("a", b"first")
    assert not store.publish("a", b"second")
    assert store.read("a") == b"first"
    assert store.publish("a", b"third", replace=True)
    assert store.read("a") == b"third"


@pytest.mark.usefixtures("in_parts")
def test_create_if_absent_holds_for_an_object_of_many_parts(lake: WatchedS3, store: ObjectStore) -> None:
    assert store.publish("a", LARGE)
    assert lake.count() == {"begin": 1, "part": 3, "complete": 1}
    assert not store.publish("a", LARGE[1:])
    assert store.read("a") == LARGE
    assert store.publish("a", LARGE[2:], replace=True)
    assert store.read("a") == LARGE[2:]
    assert uploads_left() == []


def test_our_own_object_is_known_when_the_answer_of_its_put_was_lost(lake: WatchedS3, store: ObjectStore) -> None:
    fault = lake.fault("lose answer", "put")
    assert store.publish("a", b"ours"), "S3 refuses the repeated put, because the name is taken: by us"
    assert fault.struck
    assert lake.count("put") == {"put": 2}
    assert {asked.status for asked in lake.asked if asked.operation == "put"} == {200, 412}


def test_another_s_object_is_not_ours_though_an_answer_was_lost(lake: WatchedS3, store: ObjectStore) -> None:
    store.publish("a", b"another's")
    lake.fault("lose answer", "put")
    assert not store.publish("a", b"ours")
    assert store.read("a") == b"another's"


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("replace", [False, True])
def test_our_own_large_object_is_known_when_its_upload_is_no_more(
    lake: WatchedS3, store: ObjectStore, replace: bool
) -> None:
    """moto remembers the upload; S3 may answer the repeated request with NoSuchUpload."""
    lake.fault("lose answer", "complete")
    lake.fault("refuse", "complete", status=404, code="NoSuchUpload")
    assert store.publish("a", LARGE, replace)
    assert store.read("a") == LARGE
    lake.forget()
    gone = lake.fault("refuse", "complete", status=404, code="NoSuchUpload")
    with pytest.raises(StorageFailed, match="cannot write .*: NoSuchUpload"):
        store.publish("b", LARGE, replace)
    assert gone.struck
    assert store.read("b") is None


@pytest.mark.usefixtures("in_parts")
def test_an_upload_that_fails_half_way_is_not_visible_and_is_taken_away(lake: WatchedS3, store: ObjectStore) -> None:
    lake.fault("refuse", "part", times=1000, status=403, code="AccessDenied")
    with pytest.raises(StorageFailed, match="AccessDenied"):
        store.publish("a", LARGE)
    lake.forget()
    assert (store.read("a"), store.names(), uploads_left()) == (None, [], [])


def test_two_creates_at_the_same_moment_are_tried_again(lake: WatchedS3, store: ObjectStore) -> None:
    lake.fault("refuse", "put", times=2, status=409, code="ConditionalRequestConflict")
    assert store.publish("a", b"data")
    assert lake.count("put") == {"put": 3}


def test_what_another_client_has_just_written_or_replaced_is_seen(lake: WatchedS3, store: ObjectStore) -> None:
    other = fsspec.filesystem("s3", skip_instance_cache=True)
    store.publish("x/a", b"first")
    assert store.names("x") == ["a"]
    other.pipe_file(f"{store._root}/x/b", b"new")
    assert store.names("x") == ["a", "b"]
    other.pipe_file(f"{store._root}/x/a", b"longer than before")
    assert store.read("x/a") == b"longer than before"
    with store.open("x/a") as stream:
        assert stream.read() == b"longer than before"
    other.rm_file(f"{store._root}/x/a")
    assert (store.names("x"), store.read("x/a")) == (["b"], None)


def test_a_bucket_that_is_not_there_is_told(lake: WatchedS3) -> None:
    store = open_store("s3://nowhere/out")
    for act in (lambda: store.read("a"), lambda: store.names(), lambda: store.publish("a", b"")):
        with pytest.raises(StorageFailed, match=r"s3://nowhere/out/a?: NoSuchBucket: The specified bucket does not"):
            act()
