"""Storage that is full, forbidden or away: a clear failure, nothing half-visible, and the same command goes on."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from batchjobs.errors import StorageFailed
from batchjobs.job import run_job
from batchjobs.storage import lease
from batchjobs.storage.output import ATTEMPTS, PROGRESS, SUMMARY
from batchjobs.storage.store import TMP, LocalStore, open_store
from batchjobs.supervision.progress import Progress
from batchjobs.verify import verify_output
from tests.conftest import MakeJob, batchjobs, knows_s3, read_output, run_here, serve_s3, text_table, write_spec
from tests.one_process import in_one_process


def wide_table(rows: int) -> pa.Table:
    """Rows of 20,000 characters that no compression makes much smaller."""
    noise = [os.urandom(10_000).hex() for _ in range(rows)]
    return pa.table({"text": [f"text {n}" for n in range(rows)], "noise": noise})


def interpreter_with_small_files(folder: Path, kilobytes: int) -> str:
    """A Python for replicas in which the kernel refuses to let any file grow beyond this size."""
    file = folder / "python"
    file.write_text(f'#!/bin/bash\nulimit -f {kilobytes}\nexec {sys.executable} "$@"\n')
    file.chmod(0o755)
    return str(file)


def test_a_disk_that_takes_no_more_fails_the_job_and_the_same_command_goes_on(
    make_job: MakeJob, tmp_path: Path
) -> None:
    table, python = wide_table(12), interpreter_with_small_files(tmp_path, 30)
    job = make_job(table, engine={"python": python})
    failed = run_here(job)
    assert (failed.state, failed.exit_code, failed.rows.total) == ("failed", 1, 0)
    assert f"cannot write {job.output.path}/part-000000.parquet: File too large" in failed.message
    assert "run the same command again to go on" in failed.message
    assert [attempt.cause for attempt in failed.attempts] == ["failed"]
    store = open_store(job.output.path)
    assert (store.names(), store.names(TMP)) == (["_batchjobs"], [])

    repaired = make_job(table)
    summary = run_here(repaired)
    assert summary.state == "completed"
    assert summary.rows.reused > 0, "what was finished was in the journal"
    assert read_output(repaired).select(["text", "noise"]) == table
    assert verify_output(job.output.path).complete


def test_an_output_that_cannot_be_written_is_told_without_a_traceback(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    job = make_job(output={"path": str(tmp_path / "file" / "out")})
    for command in (("run", "--no-prefect", write_spec(job, tmp_path / "job.yaml")), ("status", job.output.path)):
        ended = batchjobs(*command)
        assert ended.returncode == 1
        assert f"batchjobs: cannot read {job.output.path}/_batchjobs/plan.json: Not a directory" in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_told(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o555)
    with pytest.raises(StorageFailed, match=r"cannot lock .*/_batchjobs/lock: Permission denied"):
        run_here(make_job())


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Jobs run in this process, and their storage refuses certain writes from now on; without a name, none."""
    in_one_process(monkeypatch, tmp_path / "state")
    publish = LocalStore.publish

    def refuse_these(*refused: str, only_renewals: bool = False) -> None:
        def guarded(store: LocalStore, name: str, data: Any, replace: bool = False) -> bool:
            new = only_renewals and store.read(name) is None and name.startswith(ATTEMPTS)
            if name.startswith(refused or ("nothing",)) and not new:
                raise StorageFailed(f"cannot write {name}: Permission denied")
            return publish(store, name, data, replace)

        monkeypatch.setattr(LocalStore, "publish", guarded)

    return refuse_these


def test_progress_and_records_that_cannot_be_stored_are_one_warning(
    make_job: MakeJob, refuse: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    refuse(PROGRESS, ATTEMPTS, only_renewals=True)
    summary = run_here(make_job())
    assert summary.state == "completed"
    assert [attempt.cause for attempt in summary.attempts] == ["done"]
    warnings = [record.getMessage() for record in caplog.records if "The run goes on" in record.getMessage()]
    assert warnings == [
        f"Progress and attempt records are not stored: cannot write {ATTEMPTS}/0001.json: Permission denied. "
        "The run goes on."
    ]


def test_a_summary_that_cannot_be_stored_fails_the_job_whose_parts_are_all_there(
    make_job: MakeJob, refuse: Callable[..., None]
) -> None:
    job = make_job()
    refuse(SUMMARY)
    failed = run_here(job)
    assert (failed.state, failed.exit_code, failed.shards.committed) == ("failed", 1, 3)
    assert f"cannot write {SUMMARY}: Permission denied. 3 of 3 shards are committed; run the same command again" in (
        failed.message
    )
    refuse()
    summary = run_here(job)
    assert (summary.state, summary.rows.generated, len(summary.attempts)) == ("completed", 0, 1)


def test_a_part_that_cannot_be_stored_costs_no_finished_row_of_other_shards(
    make_job: MakeJob, refuse: Callable[..., None]
) -> None:
    job = make_job(text_table(16), run={"order": "input"})
    refuse("part-000001")
    failed = run_here(job)
    assert (failed.state, failed.shards.committed) == ("failed", 1)
    refuse()
    summary = run_here(job)
    assert summary.state == "completed"
    assert summary.rows.reused >= 4 + 2, "the committed shard, and what was journaled of the one that failed"


class PullsThePlug:
    """Watches a run, and stops the storage's server when two shards are committed."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def progress(self, now: Progress) -> None:
        if now.shards_committed >= 2 and self._server is not None:
            self._server.stop()
            self._server = None

    def log(self, line: str) -> None:
        """Nothing."""


def test_a_storage_that_goes_away_fails_the_job_and_the_same_command_goes_on(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TAKEOVER_S", 0.5)  # nobody could say that the output is free
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    server = serve_s3()
    with knows_s3(server) as url:
        options = {"endpoint_url": url, "config_kwargs": {"retries": {"max_attempts": 0}}}
        fsspec.filesystem("s3", **options).mkdir("away")
        output = {"path": "s3://away/out", "storage_options": options}
        slow = make_job(text_table(40), output=output, engine={"echo": {"tokens_per_s": 60}})
        failed = run_job(slow, PullsThePlug(server))
        assert (failed.state, failed.exit_code) == ("failed", 1)
        assert re.search(r"cannot (list|write) s3://away/out/\S+: .*(refused|connect|closed)", failed.message)
        assert "run the same command again to go on" in failed.message

        server = serve_s3(int(url.rsplit(":", 1)[1]))
        summary = run_here(make_job(text_table(40), output=output))
        assert (summary.state, summary.rows.total) == ("completed", 40)
        assert summary.rows.reused >= 8
        assert verify_output("s3://away/out").complete
    server.stop()
