"""Input, output and state on S3, over HTTP: the whole life of a job, and whom the storage lets in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3fs import S3FileSystem
from typer.testing import CliRunner

from batchjobs import cli
from batchjobs.errors import BatchjobsError, InputError, OutputError, StorageFailed
from batchjobs.spec import load_job, parse_job
from batchjobs.storage.store import open_store
from batchjobs.verify import verify_output
from schemas.job import JobSpec
from tests.conftest import batchjobs, run_here, text_table, write_spec
from tests.watched_s3 import WatchedS3


@pytest.fixture(autouse=True)
def _everybody_is_let_in(lake: WatchedS3) -> Iterator[None]:
    lake.forget()
    lake.only_key = ""
    yield
    lake.only_key = ""


def s3_job(folder: str, *tables: pa.Table, **sections: Any) -> JobSpec:
    fs = fsspec.filesystem("s3")
    for number, table in enumerate(tables):
        with fs.open(f"lake/{folder}/data/dt=2026-11-28/{number:02d}.parquet", "wb") as stream:
            pq.write_table(table, stream, row_group_size=3)
    return parse_job({
        "name": folder, "input": {"path": f"s3://lake/{folder}/data"}, "prompt": {"column": "text"},
        "sampling": {"max_tokens": 50}, "output": {"path": f"s3://lake/{folder}/out"},
        "engine": {"kind": "echo", "max_num_seqs": 2},
        "run": {"shard_rows": 4, "max_restarts": 0, "state": f"s3://lake/{folder}/state", "max_error_rate": 0.5},
        **sections,
    })  # fmt: skip


def broken(**echo: Any) -> dict[str, Any]:
    return {"kind": "echo", "max_num_seqs": 2, "echo": echo}


def test_a_job_reads_and_writes_s3_fails_and_goes_on() -> None:
    tables = (text_table(7), text_table(6, first=7))
    failed = run_here(s3_job("fails", *tables, engine=broken(raise_rows=[9])))
    assert failed.state == "failed"
    job = s3_job("fails")
    summary = run_here(job)
    assert (summary.state, summary.rows.total) == ("completed", 13)
    assert summary.rows.reused >= failed.rows.total > 0
    fs = fsspec.filesystem("s3")
    outputs = [pq.read_table(fs.open(path)) for path in sorted(fs.glob("lake/fails/out/part-*.parquet"))]
    assert pa.concat_tables(outputs)["output"].to_pylist() == [f"text {n}" for n in range(13)]
    assert run_here(job) == summary
    assert verify_output("s3://lake/fails/out").complete
    assert fs.exists("lake/fails/out/_SUCCESS")
    assert fs.exists("lake/fails/out/_batchjobs/logs/0001.log")


def test_every_command_knows_an_output_on_s3_and_runs_leave_their_history_there(tmp_path: Path) -> None:
    job = s3_job("life", text_table(12), engine=broken(error_rows=[3]))
    file = write_spec(job, tmp_path / "job.yaml")
    out, fs = job.output.path, fsspec.filesystem("s3", use_listings_cache=False)

    def said(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli.app, list(arguments))
        assert done.exit_code == code, done.output
        return done.output

    said("plan", str(file))
    assert "errors 1" in said("run", "--no-prefect", str(file))
    assert "completed" in said("status", out)
    assert "complete. 3 shards, 12 rows (11 ok, 1 errors)" in said("verify", out)
    assert "engine_error" in said("explain", out, "3")
    assert "_batchjobs/report.html" in said("report", out)
    assert "All 11 are equal" in said("compare", out, out)
    assert "errors 1" in said("retry-failed", out)
    before = fs.find(out)
    said("run", "--no-prefect", str(file))
    assert fs.find(out) == before, "nothing is left to do"
    assert len(fs.ls("lake/life/state/history/life")) == 2
    assert fs.exists(f"{out}/_batchjobs/report.html")


def test_credentials_come_from_a_profile_and_stand_nowhere(
    lake: WatchedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = s3_job("profile", text_table(4))
    (tmp_path / "credentials").write_text(
        "[night]\naws_access_key_id = night-key\naws_secret_access_key = night-secret\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "night")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{lake.get_host_and_port()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    S3FileSystem.clear_instance_cache()
    lake.only_key = "night-key"
    ended = batchjobs("run", "--no-prefect", write_spec(job, tmp_path / "job.yaml"))
    assert ended.returncode == 0, ended.stderr
    fs = fsspec.filesystem("s3")
    written = b"".join(fs.cat(fs.find("lake/profile/out") + fs.find("lake/profile/state")).values())
    assert b"night-" not in written + (ended.stdout + ended.stderr).encode()


def test_references_in_storage_options_are_resolved_and_stored_as_they_are(
    lake: WatchedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"key": "${LAKE_KEY}", "secret": "${LAKE_SECRET}", "endpoint_url": "${LAKE_URL}"}
    s3_job("references", text_table(4))
    job = s3_job(
        "references",
        input={"path": "s3://lake/references/data", "storage_options": options},
        output={"path": "s3://lake/references/out", "storage_options": options},
        run={"shard_rows": 4},
    )
    monkeypatch.setenv("LAKE_KEY", "reference-key")
    monkeypatch.setenv("LAKE_SECRET", "reference-secret")
    monkeypatch.setenv("LAKE_URL", f"http://127.0.0.1:{lake.get_host_and_port()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    lake.only_key = "reference-key"
    assert run_here(load_job(write_spec(job, tmp_path / "job.yaml"))).state == "completed"
    fs = fsspec.filesystem("s3", key="reference-key", secret="x", endpoint_url=lake_url(lake))
    written = b"".join(fs.cat(fs.find("lake/references/out")).values())
    assert b"${LAKE_SECRET}" in written
    assert b"reference-" not in written


def lake_url(lake: WatchedS3) -> str:
    return "http://{}:{}".format(*lake.get_host_and_port())


def wrong_key(lake: WatchedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.only_key = "another"


def no_key(lake: WatchedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


def no_profile(lake: WatchedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (wrong_key, "no access; credentials come from the environment or from storage_options"),
        (no_key, r"Unable to locate credentials \(no access"),
        (no_profile, r"The config profile \(nobody\) could not be found \(no access"),
    ],
)
def test_without_access_input_and_output_are_refused_in_a_sentence_and_at_once(
    lake: WatchedS3, monkeypatch: pytest.MonkeyPatch, happens: Callable[..., None], told: str
) -> None:
    job = s3_job("secret", text_table(4))
    lake.forget()
    happens(lake, monkeypatch)
    S3FileSystem.clear_instance_cache()
    with pytest.raises(InputError, match=rf"Input s3://lake/secret/data cannot be listed: .*{told}"):
        run_here(job)
    with pytest.raises(StorageFailed, match=rf"cannot read s3://lake/secret/out/_batchjobs/plan.json: .*{told}"):
        verify_output(job.output.path)
    assert len(lake.asked) <= 2, "nothing was tried again"


def test_a_bucket_that_is_not_there_is_told_before_anything_is_done(lake: WatchedS3) -> None:
    job = s3_job("bucket", text_table(4))
    away = job.model_copy(update={"output": job.output.model_copy(update={"path": "s3://nowhere/out"})})
    with pytest.raises(StorageFailed, match=r"cannot read s3://nowhere/out/\S+: NoSuchBucket: The specified bucket"):
        run_here(away)
    gone = job.model_copy(update={"input": job.input.model_copy(update={"path": "s3://nowhere/data"})})
    with pytest.raises(InputError, match="Input s3://nowhere/data does not exist"):
        run_here(gone)
    assert {asked.operation for asked in lake.asked if asked.key.startswith("nowhere")} <= {"head", "get", "list"}


def test_an_endpoint_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0)
    store = open_store("s3://lake/out", {"endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(StorageFailed, match=r"Could not connect to the endpoint URL: .http://127.0.0.1:9/"):
        store.read("a")


@pytest.mark.parametrize("scheme", ["hf", "https"])
def test_what_can_only_be_read_is_refused_as_an_output(scheme: str) -> None:
    job = s3_job("readonly", output={"path": f"{scheme}://datasets/me/out"})
    with pytest.raises(OutputError, match=f"{scheme}:// is for input only"):
        run_here(job)


@pytest.mark.parametrize(("url", "extra"), [("gs://b/x", "gs"), ("az://c/x", "az"), ("abfs://c/x", "az")])
def test_a_package_that_is_missing_is_named_by_its_extra(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("gcsfs", "adlfs"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    message = rf"{url.split(':')[0]}:// needs a package that is not installed: pip install 'batchjobs\[{extra}\]'"
    with pytest.raises(OutputError, match=f"The output {url} cannot be opened: {message}"):
        open_store(url)
    with pytest.raises(BatchjobsError, match=message):
        run_here(s3_job("missing", input={"path": url}))
