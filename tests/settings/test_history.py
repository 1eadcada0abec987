"""What a run leaves for the next one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.settings.history import folder_of, newest_record, records, write_record
from schemas.history import HistoryRecord
from schemas.job import JobSpec
from schemas.summary import Timeline
from tests.conftest import MakeJob, run_here

TEXTS = pa.table({"text": ["x" * n for n in (5, 1, 9, 3, 7, 2, 8)]})


def files(state: Path) -> list[Path]:
    return sorted(state.glob("history/*/*.json"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def job_with(make_job: MakeJob, state: Path, output: Path, **sections: object) -> JobSpec:
    return make_job(TEXTS, run={"state": str(state)}, output={"path": str(output)}, **sections)


def test_each_run_leaves_one_record_with_its_summary_and_what_it_learnt(
    make_job: MakeJob, state: Path, tmp_path: Path
) -> None:
    job = job_with(make_job, state, tmp_path / "out")
    summary = run_here(job)
    run_here(job)  # nothing to do
    (file,) = files(state)
    record = HistoryRecord.model_validate_json(file.read_bytes())
    assert (record.job, record.summary) == ("test", summary.model_copy(update={"timeline": Timeline()}))
    assert record.lengths == {"1": [1, 1], "2": [2, 5], "4": [2, 12], "8": [2, 17]}


def test_the_next_run_of_the_job_starts_with_what_the_last_one_learnt(
    make_job: MakeJob, state: Path, tmp_path: Path
) -> None:
    """Both runs' rows are in the second record: the first run's were handed on."""
    run_here(job_with(make_job, state, tmp_path / "one"))
    run_here(job_with(make_job, state, tmp_path / "two"))
    run_here(job_with(make_job, state, tmp_path / "three", name="other"))
    last = {record.job: record.lengths for record in map(_read, files(state))}
    assert last["test"] == {"1": [2, 2], "2": [4, 10], "4": [4, 24], "8": [4, 34]}
    assert last["other"] == {"1": [1, 1], "2": [2, 5], "4": [2, 12], "8": [2, 17]}


def _read(file: Path) -> HistoryRecord:
    return HistoryRecord.model_validate_json(file.read_bytes())


def test_all_attempts_of_a_run_have_their_say(make_job: MakeJob, state: Path, tmp_path: Path) -> None:
    """The engine dies on row 6, the last one, after more than a second; what it told until then is not lost."""
    engine = {"max_num_seqs": 1, "echo": {"raise_rows": [6], "tokens_per_s": 10}}
    job = make_job(TEXTS, engine=engine, run={"state": str(state), "max_error_rate": 1, "order": "input"})
    summary = run_here(job)
    learnt = sum(rows for rows, _ in _read(files(state)[-1]).lengths.values())
    assert summary.attempts[-1].rows_done < learnt <= summary.rows.ok == 6


@pytest.mark.parametrize("content", ["", "{", '{"job": "test"}', json.dumps({"lengths": {"x": [1]}})])
def test_a_record_that_is_damaged_is_a_warning(
    make_job: MakeJob, state: Path, tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = state / folder_of("test")
    folder.mkdir(parents=True)
    (folder / "29991231T000000.000000Z-0.json").write_text(content)
    assert run_here(job_with(make_job, state, tmp_path / "out")).state == "completed"
    assert "cannot be read" in caplog.text


def test_a_state_folder_that_is_none_is_a_warning(
    make_job: MakeJob, state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state.write_text("a file, not a folder")
    assert run_here(job_with(make_job, state, tmp_path / "out")).state == "completed"
    assert "is not remembered" in caplog.text


def test_the_newest_record_is_read_and_every_name_of_a_job_has_a_folder_of_its_own(
    make_job: MakeJob, state: Path, tmp_path: Path
) -> None:
    names = ["a b", "a_b", "a/b", "../../b", "..", ".", "é", "x" * 300]
    assert len({folder_of(name) for name in names}) == len(names)
    summary = run_here(job_with(make_job, tmp_path / "elsewhere", tmp_path / "out"))
    for number, name in enumerate(names * 2, start=1):
        job = job_with(make_job, state, tmp_path / "out", name=name)
        lengths = OutputLengths({"1": [number, number]}).plain()
        write_record(job, HistoryRecord(job=name, ended=datetime.now(UTC), summary=summary, lengths=lengths))
        newest = newest_record(job)
        assert newest is not None
        assert (newest.job, newest.lengths) == (name, {"1": [number, number]})
    assert len(files(state)) == 2 * len(names)


def test_the_record_says_what_ran_with_what_and_nothing_secret(
    make_job: MakeJob, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    engine = {"env": {"KEY": "hush"}, "echo": {"answer": "yes"}, "max_num_seqs": "auto", "replicas": 1}
    job = job_with(make_job, state, tmp_path / "out", engine=engine, sampling={"stop": ["a", "b"]})
    run_here(job.model_copy(update={"input": job.input.model_copy(update={"storage_options": {"key": "${TOKEN}"}})}))
    (file,) = files(state)
    assert "hush" not in file.read_text()
    (record,) = records(job, last=5)
    assert (record.model, record.device) == (None, "cpu")
    assert {"batchjobs", "engine"} <= record.versions.keys()
    settings = record.settings
    assert settings["engine.max_num_seqs"] == record.summary.engine.max_num_seqs
    assert (settings["sampling.stop"], settings["engine.echo.answer"], settings["sampling.max_tokens"]) == (
        '["a", "b"]', "yes", 100,
    )  # fmt: skip


def test_the_last_records_come_newest_last_and_a_damaged_one_is_left_out(
    make_job: MakeJob, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_with(make_job, state, tmp_path / "out")
    summary = run_here(job)
    for number in range(4):
        write_record(job, HistoryRecord(job="test", ended=datetime(2030 + number, 1, 1, tzinfo=UTC), summary=summary,
                                        lengths={}))  # fmt: skip
    files(state)[-1].write_text("{")
    assert [record.ended.year for record in records(job, last=2)] == [2031, 2032]
    assert len(records(job, last=10)) == 4
    assert records(job.model_copy(update={"name": "never ran"}), last=3) == []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user"))
    of_the_user = job.model_copy(update={"run": job.run.model_copy(update={"state": None})})
    write_record(of_the_user, records(job, last=1)[0])
    assert [record.ended.year for record in records(of_the_user, last=3)] == [2032]


def test_a_record_of_an_older_version_is_read(make_job: MakeJob, state: Path, tmp_path: Path) -> None:
    job = job_with(make_job, state, tmp_path / "out")
    run_here(job)
    (file,) = files(state)
    record = json.loads(file.read_text())
    old = {name: record[name] for name in ("job", "ended", "summary", "lengths")}
    for name in ("saved", "health", "lengths", "memory", "timeline", "foreseen", "previous"):
        del old["summary"][name]
    file.write_text(json.dumps(old))
    (found,) = records(job, last=1)
    assert (found.model, found.settings, found.summary.health.answers) == (None, {}, 0)
