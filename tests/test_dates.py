"""Date variables of a job file."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path

import pytest
import yaml

from batchjobs.errors import SpecError
from batchjobs.explain import explain_row
from batchjobs.job import prepare
from batchjobs.reports.page import write_report
from batchjobs.retry import job_of, retry_failed
from batchjobs.spec import load_job, parse_job
from batchjobs.storage.store import open_store
from batchjobs.supervision.progress import Silent
from batchjobs.tuning.job_file import write_tuned
from tests.conftest import batchjobs, run_here, summary_of
from tests.dated import WriteFile, dated_job_file, rows_of

DAY = date(2026, 3, 1)


@pytest.fixture
def job_file(tmp_path: Path) -> WriteFile:
    return partial(dated_job_file, tmp_path)


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("{{ ds }}", "2026-03-01"),
        ("{{ds_nodash}}", "20260301"),
        ("{{ yesterday_ds }}", "2026-02-28"),
        ("{{  yesterday_ds_nodash }}", "20260228"),
        ("{{ year }}/{{ month }}/{{ day }}", "2026/03/01"),
    ],
)
def test_each_variable_stands_for_its_part_of_the_date(
    job_file: WriteFile, tmp_path: Path, written: str, filled: str
) -> None:
    ready = {"marker": f"flags/{written}.done"}
    data = {"path": ["a/" + written, "b/" + written], "filter": f"d = '{written}'", "ready": ready}
    job = load_job(job_file(input=data, output={"path": f"out/{written}"}), DAY)
    assert job.input.path == [f"{tmp_path}/a/{filled}", f"{tmp_path}/b/{filled}"]
    assert job.input.filter == f"d = '{filled}'"
    assert job.input.ready is not None
    assert job.input.ready.marker == f"{tmp_path}/flags/{filled}.done"
    assert (job.output.path, job.date) == (f"{tmp_path}/out/{filled}", "2026-03-01")


def test_name_and_prompts_are_left_alone(job_file: WriteFile) -> None:
    job = load_job(job_file(name="docs {{ ds }}"), DAY)
    assert (job.name, job.prompt.template) == ("docs {{ ds }}", "{{ ds }}: {{ text }}")


def test_an_unknown_variable_is_refused_with_those_that_there_are(job_file: WriteFile) -> None:
    with pytest.raises(SpecError, match=r"output\.path: found {{ dss }}; allowed: {{ ds }}, {{ ds_nodash }}, "):
        load_job(job_file(output={"path": "out/{{ dss }}"}), DAY)


def test_an_output_that_is_the_same_for_every_date_is_refused(job_file: WriteFile) -> None:
    with pytest.raises(SpecError, match=r"output\.path: found .*/out, which has no date variable, though input\.path"):
        load_job(job_file(output={"path": "out"}), DAY)


def test_a_date_that_changes_nothing_is_refused(job_file: WriteFile) -> None:
    plain = {"input": {"path": "data"}, "output": {"path": "out"}}
    with pytest.raises(SpecError, match="has no date variable, so the date 2026-03-01 would change nothing"):
        load_job(job_file(**plain), DAY)
    assert load_job(job_file(**plain), default_day=DAY).date is None


def test_the_date_is_the_one_asked_for_else_the_files_own_else_the_default(job_file: WriteFile) -> None:
    assert load_job(job_file(date=date(2026, 1, 2)), DAY, date(2026, 5, 5)).date == "2026-03-01"
    assert load_job(job_file(date=date(2026, 1, 2)), default_day=DAY).date == "2026-01-02"
    assert load_job(job_file(), default_day=DAY).date == "2026-03-01"
    with pytest.raises(SpecError, match="date: found 'tonight'; allowed: a date such as 2026-11-28"):
        load_job(job_file(date="tonight"))


def test_a_spec_with_open_variables_that_came_another_way_is_refused(job_file: WriteFile) -> None:
    with pytest.raises(SpecError, match=r"input\.path: found {{ ds }}; allowed: only in a job file"):
        prepare(parse_job(yaml.safe_load(job_file().read_text())))


def test_a_tuned_job_file_is_still_the_file_of_every_night(job_file: WriteFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "tuned.yaml"  # other relative paths, so it is written anew
    elsewhere.parent.mkdir()
    for tuned in (tmp_path / "tuned.yaml", elsewhere):
        write_tuned(job_file(), {"max_num_seqs": 7}, tuned)
        job = load_job(tuned, DAY)
        assert (job.output.path, job.engine.max_num_seqs) == (f"{tmp_path}/out/dt=2026-03-01", 7)


def test_one_file_is_the_job_of_every_date_and_its_output_goes_on_by_itself(
    job_file: WriteFile, tmp_path: Path
) -> None:
    file = job_file(engine={"kind": "echo", "echo": {"error_rows": [1]}})
    for day in ("2026-02-28", "2026-03-01"):
        rows_of(tmp_path, day)
        done = batchjobs("run", "--no-prefect", "--json", file, "--date", day)
        assert (done.returncode, summary_of(done)["date"]) == (3, day), done.stderr
    output = f"{tmp_path}/out/dt=2026-03-01"
    stored = job_of(output)
    assert (stored.date, stored.input.path) == ("2026-03-01", f"{tmp_path}/data/dt=2026-03-01")
    retried = retry_failed(output, [], Silent())
    assert (retried.date, retried.rows.generated) == ("2026-03-01", 1)
    assert explain_row(output, 0)["result"]["output"] == "column: text 0"
    assert write_report(open_store(output)).endswith("report.html")
    assert run_here(load_job(file, DAY)) == retried
    assert run_here(load_job(f"{output}/_batchjobs/spec.yaml")) == retried


def test_the_command_says_what_it_takes_for_a_date(job_file: WriteFile) -> None:
    refused = batchjobs("plan", job_file(), "--date", "yesterday")
    assert refused.returncode == 2
    assert "--date: found 'yesterday'; allowed: a date such as 2026-11-28" in refused.stderr
