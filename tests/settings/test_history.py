"""What a run leaves for the next one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.settings.history import folder_of, newest_record, write_record
from schemas.history import HistoryRecord
from schemas.job import JobSpec
from tests.conftest import MakeJob, run_here

TEXTS = pa.table({"text": ["x" * n for n in (5, 1, 9, 3, 7, 2, 8)]})


def records(state: Path) -> list[Path]:
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
    (file,) = records(state)
    record = HistoryRecord.model_validate_json(file.read_bytes())
    assert (record.job, record.summary) == ("test", summary)
    assert record.lengths == {"1": [1, 1], "2": [2, 5], "4": [2, 12], "8": [2, 17]}


def test_the_next_run_of_the_job_starts_with_what_the_last_one_learnt(
    make_job: MakeJob, state: Path, tmp_path: Path
) -> None:
    """Both runs' rows are in the second record: the first run's were handed on."""
    run_here(job_with(make_job, state, tmp_path / "one"))
    run_here(job_with(make_job, state, tmp_path / "two"))
    run_here(job_with(make_job, state, tmp_path / "three", name="other"))
    last = {record.job: record.lengths for record in map(_read, records(state))}
    assert last["test"] == {"1": [2, 2], "2": [4, 10], "4": [4, 24], "8": [4, 34]}
    assert last["other"] == {"1": [1, 1], "2": [2, 5], "4": [2, 12], "8": [2, 17]}


def _read(file: Path) -> HistoryRecord:
    return HistoryRecord.model_validate_json(file.read_bytes())


def test_all_attempts_of_a_run_have_their_say(make_job: MakeJob, state: Path, tmp_path: Path) -> None:
    """The engine dies on row 6, the last one, after more than a second; what it told until then is not lost."""
    engine = {"max_num_seqs": 1, "echo": {"raise_rows": [6], "tokens_per_s": 10}}
    job = make_job(TEXTS, engine=engine, run={"state": str(state), "max_error_rate": 1, "order": "input"})
    summary = run_here(job)
    learnt = sum(rows for rows, _ in _read(records(state)[-1]).lengths.values())
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
        write_record(job, summary, OutputLengths({"1": [number, number]}))
        newest = newest_record(job)
        assert newest is not None
        assert (newest.job, newest.lengths) == (name, {"1": [number, number]})
    assert len(records(state)) == 2 * len(names)
