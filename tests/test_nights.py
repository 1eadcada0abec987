"""Several jobs one after the other, and `batchjobs backfill`."""

from __future__ import annotations

import json
from datetime import date
from functools import partial
from pathlib import Path

import pytest

from batchjobs.errors import InputMissing, SpecError
from batchjobs.nights import Night, dated_nights, dates, in_turn, is_complete, table, worst
from batchjobs.spec import load_job
from schemas.job import JobSpec
from schemas.summary import Summary
from tests.conftest import batchjobs, run_here
from tests.dated import WriteFile, dated_job_file, rows_of

FIRST, LAST = date(2026, 11, 1), date(2026, 11, 4)


@pytest.fixture
def job_file(tmp_path: Path) -> WriteFile:
    return partial(dated_job_file, tmp_path)


def outputs(folder: Path) -> list[str]:
    return sorted(output.name for output in (folder / "out").glob("dt=*") if (output / "_SUCCESS").exists())


def test_a_range_has_both_its_ends() -> None:
    found = [str(day) for day in dates(date(2026, 2, 27), date(2026, 3, 1))]
    assert found == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert dates(FIRST, FIRST) == [FIRST]
    with pytest.raises(SpecError, match="The last date, 2026-11-01, is before the first, 2026-11-04"):
        dates(LAST, FIRST)


def test_a_backfill_runs_the_missing_dates_oldest_first(job_file: WriteFile, tmp_path: Path) -> None:
    file = job_file(cost={"usd_per_hour": 2.5})
    for day in dates(FIRST, LAST):
        rows_of(tmp_path, day)
    run_here(load_job(file, date(2026, 11, 2)))
    span = ("--from", FIRST, "--to", LAST)
    listed = batchjobs("backfill", file, *map(str, span), "--dry-run")
    assert [line.split()[0:2] for line in listed.stdout.splitlines()] == [
        ["2026-11-01", "would"], ["2026-11-02", "complete"], ["2026-11-03", "would"], ["2026-11-04", "would"],
    ]  # fmt: skip
    assert outputs(tmp_path) == ["dt=2026-11-02"]

    done = batchjobs("backfill", file, *map(str, span), "--no-prefect")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["date", "state", "rows", "cost"]
    assert [line.split()[:2] for line in lines] == [[f"2026-11-0{n}", "completed"] for n in (1, 3, 4)]
    assert all("6 ok, 0 errors" in line and "$0.0" in line for line in lines)
    assert "3 of 4 dates are missing" in done.stderr
    assert outputs(tmp_path) == [f"dt=2026-11-0{n}" for n in (1, 2, 3, 4)]
    again = batchjobs("backfill", file, *map(str, span), "--no-prefect")
    assert (again.returncode, again.stdout) == (0, "All 4 dates are complete already; nothing was done.\n")


def test_a_date_that_fails_does_not_keep_the_next_from_running(job_file: WriteFile, tmp_path: Path) -> None:
    file = job_file(input={"ready": {"wait": "5h"}})  # which no backfill waits for
    for day in ("2026-11-01", "2026-11-03"):
        rows_of(tmp_path, day)
    done = batchjobs("backfill", file, "--from", "2026-11-01", "--to", "2026-11-03", "--no-prefect", "--json")
    found = [(one["date"], one["state"]) for one in json.loads(done.stdout)]
    assert found == [("2026-11-01", "completed"), ("2026-11-02", "refused"), ("2026-11-03", "completed")]
    assert done.returncode == 2
    assert "dt=2026-11-02 does not exist" in json.loads(done.stdout)[1]["message"]


def test_a_job_file_that_cannot_be_used_is_refused_before_any_date(job_file: WriteFile) -> None:
    span = ("--from", "2026-11-01", "--to", "2026-11-03", "--no-prefect")
    plain = batchjobs("backfill", job_file(input={"path": "data"}, output={"path": "out"}), *span)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert "has no date variable" in plain.stderr


def test_a_stop_ends_the_backfill_and_the_same_command_goes_on(job_file: WriteFile, tmp_path: Path) -> None:
    for day in dates(FIRST, LAST):
        rows_of(tmp_path, day, rows=12)
    slow = job_file(engine={"kind": "echo", "max_num_seqs": 2, "echo": {"tokens_per_s": 20}})
    command = ["backfill", str(slow), "--from", str(FIRST), "--to", str(LAST), "--no-prefect"]
    begun = tmp_path / "out/dt=2026-11-01/part-000000.parquet"
    stopped = batchjobs(*command, stop_when=begun.exists)
    assert stopped.returncode == 3, stopped.stderr
    assert "Stopped: 3 dates were not begun. The same command goes on." in stopped.stdout
    assert not (tmp_path / "out/dt=2026-11-02").exists()
    job_file()  # the same job, fast
    assert batchjobs(*command).returncode == 0
    assert len(outputs(tmp_path)) == 4


def in_memory(*days: date) -> list[Night]:
    job = JobSpec.model_validate(
        {"name": "x", "input": {"path": "/none"}, "prompt": {"column": "text"}, "sampling": {"max_tokens": 1},
         "engine": {"kind": "echo"}, "output": {"path": "/none"}}
    )  # fmt: skip
    return [Night(Path("x.yaml"), partial(job.model_copy, update={"date": str(day)}), day) for day in days]


def test_a_file_that_is_refused_twice_in_the_same_words_is_not_tried_again() -> None:
    tried: list[JobSpec] = []

    def refuse(job: JobSpec) -> Summary:
        tried.append(job)
        raise SpecError("model.name: found x, which is no model")

    outcomes = in_turn(in_memory(*dates(FIRST, LAST)), refuse)
    assert [o.state for o in outcomes] == ["refused"] * 4
    assert len(tried) == 2
    assert outcomes[-1].message == "Not tried: it would be refused for the same reason."


def test_an_error_that_nobody_expected_ends_only_its_own_job() -> None:
    def fail(job: JobSpec) -> Summary:
        raise ZeroDivisionError("a bug") if job.date == "2026-11-01" else InputMissing(f"no {job.date}")

    outcomes = in_turn(in_memory(FIRST, LAST), fail)
    assert [(o.state, o.message) for o in outcomes] == [
        ("failed", "ZeroDivisionError: a bug"), ("refused", "no 2026-11-04")
    ]  # fmt: skip
    assert worst(outcomes) == "failed"
    assert table(outcomes)[0] == ("2026-11-01", "failed", "–", "–")


def test_an_output_is_complete_when_it_says_so(job_file: WriteFile, tmp_path: Path) -> None:
    rows_of(tmp_path, FIRST)
    (night,) = dated_nights(job_file(), [FIRST])
    assert not is_complete(night)
    run_here(night.load())
    assert is_complete(night)
