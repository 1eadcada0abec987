"""A job on S3, over HTTP: it dies at every change it makes there, and the same command completes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from batchjobs.errors import BatchjobsError
from batchjobs.storage.store import open_store
from schemas.job import JobSpec
from schemas.summary import Summary
from tests.conftest import MakeJob
from tests.one_process import in_one_process
from tests.test_faults import TEXTS, answers, assert_done, assert_nothing_is_half_visible, run_once
from tests.watched_s3 import WatchedS3


@pytest.fixture
def jobs(make_job: MakeJob, lake: WatchedS3) -> Iterator[JobSpec]:
    """The same job of two shards again and again, each with an output and a state of its own on S3."""
    folder = f"s3://lake/{uuid4().hex}"  # the bucket outlives a test
    job = make_job(pa.table({"text": TEXTS}), run={"max_error_rate": 0.1, "shard_rows": 6})

    def jobs() -> Iterator[JobSpec]:
        for number in count():
            output = job.output.model_copy(update={"path": f"{folder}/{number}/out"})
            run = job.run.model_copy(update={"state": f"{folder}/{number}/state"})
            yield job.model_copy(update={"output": output, "run": run})

    return jobs()


def until_it_dies(job: JobSpec) -> Summary | None:
    """Whatever is done after its death, no change of it reaches the storage."""
    try:
        return run_once(job)
    except BatchjobsError:
        return None


@pytest.mark.parametrize("first", [1, 2], ids=["odd", "even"])  # two halves, so that two workers may share them
def test_a_job_may_die_at_every_change_it_makes_on_s3(
    first: int,
    jobs: Iterator[JobSpec],
    lake: WatchedS3,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To die before a change is to die after the one before it."""
    caplog.set_level(logging.CRITICAL, "batchjobs")
    in_one_process(monkeypatch, tmp_path / "state")
    undisturbed = next(jobs)
    lake.forget()
    run_once(undisturbed)
    changes = lake.changes
    expected = answers(open_store(undisturbed.output.path))
    for at in count(first, 2):
        job = next(jobs)
        lake.forget()
        lake.dies_at = at
        until_it_dies(job)
        died, last = lake.changes >= at, [str(asked) for asked in lake.asked if asked.status < 300][-4:]
        lake.forget()
        if not died:
            break
        try:
            assert_nothing_is_half_visible(open_store(job.output.path), set())
            assert_done(job, run_once(job), expected)
        except BaseException as problem:
            problem.add_note(f"died after change {at}; the last answers: {last}")
            raise
    assert at >= changes - 5 > 15
    print(f"{(at - first) // 2} deaths, each followed by a run that completed")
