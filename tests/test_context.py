"""`max_model_len: auto`: a row that the sample did not foresee is answered as with the model's own length."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchjobs.job import run_job
from batchjobs.reports.text import text
from batchjobs.spec import limited
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, read_output, run_here, summary_of, write_spec
from tests.models import word_model

OWN = 2_000  # what the engine itself takes
UNFORESEEN = {50: 400, 60: 3_000, 70: 1_995}  # words of rows that lie between the sampled places


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def job_with(make_job: MakeJob, folder: Path, max_model_len: int | str | None, **sections: Any) -> JobSpec:
    words = [UNFORESEEN.get(row, 10) for row in range(600)]
    model = folder / "model" if (folder / "model").is_dir() else word_model(folder / "model")
    spec: dict[str, Any] = {
        "sampling": {"max_tokens": 20}, "model": {"name": str(model), "max_model_len": max_model_len},
        "engine": {"max_num_seqs": 16, "echo": {"max_model_len": OWN, "answer": "an answer longer than the room"}},
        "run": {"shard_rows": 20}, "output": {"path": str(folder / f"out-{max_model_len}"), "keep_columns": []},
    }  # fmt: skip
    return make_job(pa.table({"text": ["w " * count for count in words]}), **{**spec, **sections})


def test_it_is_raised_as_often_as_needed_and_no_answer_differs(make_job: MakeJob, tmp_path: Path) -> None:
    summary = run_here(job_with(make_job, tmp_path, "auto"))
    assert summary.state == "completed"
    assert [attempt.cause for attempt in summary.attempts] == ["context_too_short", "context_too_short", "done"]
    assert [attempt.remedy for attempt in summary.attempts] == [
        "max_model_len 256 -> 1024", "max_model_len 1024 -> 2000", None,
    ]  # fmt: skip
    assert [attempt.settings["max_model_len"] for attempt in summary.attempts] == [256, 1024, 2000]
    assert (summary.errors, summary.warnings) == ({"prompt_too_long": 1}, {"max_tokens": 598, "context": 1})
    own = job_with(make_job, tmp_path, None)
    run_here(own)
    found, expected = (
        read_output(job).drop_columns(["attempt", "queue_s", "ttft_s"]).to_pylist()
        for job in (job_with(make_job, tmp_path, "auto"), own)
    )
    assert found == expected
    assert found[60]["error"] == "the prompt has 3000 tokens; max_model_len is 2000, one is for the answer"


def test_the_restart_counts_against_no_limit(make_job: MakeJob, tmp_path: Path) -> None:
    job = job_with(make_job, tmp_path, "auto", run={"shard_rows": 20, "max_restarts": 0})
    assert run_here(job).state == "completed"


def test_the_summary_and_the_report_say_what_was_chosen_and_why(make_job: MakeJob, tmp_path: Path) -> None:
    summary = run_here(limited(job_with(make_job, tmp_path, "auto"), 40))
    chosen = summary.sizing["max_model_len"]
    reason = (
        "The longest of 40 sampled rows may need 30 tokens, and with a margin 256; the model's own length is 2,000."
    )
    assert (chosen.value, chosen.reason) == (256, reason)
    assert f"max_model_len  256. {reason}" in text(summary)
    raised = run_here(job_with(make_job, tmp_path, "auto")).sizing["max_model_len"]
    assert raised.value == 2_000
    assert raised.reason.startswith("Raised to 2,000: row 70 may need 2000 tokens of context")


def test_it_is_said_at_the_start_of_a_run_and_by_plan(make_job: MakeJob, tmp_path: Path) -> None:
    class Listening:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def progress(self, now: object) -> None:
            pass

        def log(self, line: str) -> None:
            self.lines.append(line)

    job = limited(job_with(make_job, tmp_path, "auto"), 40)
    file = write_spec(job, tmp_path / "job.yaml")
    planned = batchjobs("plan", file)
    assert re.search(r"max_model_len +256\. The longest of 40 sampled rows", planned.stdout)
    assert summary_of(batchjobs("plan", "--json", file))["sizing"]["max_model_len"]["value"] == 256
    assert not Path(job.output.path).exists()
    reporter = Listening()
    run_job(job, reporter)
    assert reporter.lines[0].startswith("max_model_len: 256. The longest of 40 sampled rows")


def test_an_output_goes_on_whatever_was_chosen_before(make_job: MakeJob, tmp_path: Path) -> None:
    whole = job_with(make_job, tmp_path, "auto", run={"shard_rows": 20, "max_restarts": 0})
    broken = whole.model_copy(
        update={"engine": whole.engine.model_copy(update={
            "echo": whole.engine.echo.model_copy(update={"raise_rows": [300]})})}
    )  # fmt: skip
    first = run_here(broken)
    assert (first.state, first.attempts[-1].settings["max_model_len"]) == ("failed", 2_000)
    second = run_here(whole)
    assert second.state == "completed"
    assert second.rows.reused > 0
    assert second.sizing["max_model_len"].value == 256  # of what is left
    assert second.attempts[-1].settings["max_model_len"] == 256


def test_a_job_without_it_is_as_it_was(make_job: MakeJob, tmp_path: Path) -> None:
    summary = run_here(job_with(make_job, tmp_path, 100, run={"shard_rows": 20, "max_error_rate": 0.1}))
    assert (summary.state, summary.errors, summary.sizing) == ("completed", {"prompt_too_long": 3}, {})
