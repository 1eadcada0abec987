"""`retry-failed` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from batchjobs.errors import OutputError, SpecError
from batchjobs.explain import explain_row
from batchjobs.retry import retry_failed
from batchjobs.storage.checkpoint import read_commit
from batchjobs.storage.store import open_store
from batchjobs.supervision.progress import Silent
from batchjobs.verify import verify_output
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, read_output, run_here

TEXTS = pa.table({"text": [f"text {n}" if n != 2 else None for n in range(12)]})


@pytest.fixture
def with_errors(make_job: MakeJob) -> JobSpec:
    """Rows 2 (null), 5 (engine error) and 9 (rejected) failed; the engine has been repaired since."""
    job = make_job(TEXTS, engine={"echo": {"error_rows": [5], "reject_rows": [9]}}, run={"max_error_rate": 1})
    assert run_here(job).rows.error == 3
    spec = Path(job.output.path) / "_batchjobs/spec.yaml"
    spec.write_text(spec.read_text().replace("- 5", "- 500").replace("- 9", "- 900"))
    return job


def stamps(job: JobSpec) -> dict[str, int]:
    return {part.name: part.stat().st_mtime_ns for part in Path(job.output.path).glob("part-*")}


def test_only_the_rows_that_may_go_well_run_again_and_only_their_parts_are_replaced(with_errors: JobSpec) -> None:
    before, table = stamps(with_errors), read_output(with_errors)
    summary = retry_failed(with_errors.output.path, [], Silent())
    assert summary.errors == {"null_prompt": 1}
    assert (summary.rows.ok, summary.rows.generated, summary.rows.reused) == (11, 2, 10)
    after = stamps(with_errors)
    assert {name for name in after if after[name] != before[name]} == {"part-000001.parquet", "part-000002.parquet"}
    assert read_commit(open_store(with_errors.output.path), 1).revision == 1
    results = read_output(with_errors)
    assert results["output"].to_pylist() == [f"text {n}" if n != 2 else None for n in range(12)]
    assert results["attempt"].to_pylist() == [2 if n in (5, 9) else 1 for n in range(12)]
    untouched = [n for n in range(12) if n not in (5, 9)]
    assert results.take(untouched).equals(table.take(untouched))
    assert verify_output(with_errors.output.path).complete


def test_chosen_codes_are_the_only_ones_retried(with_errors: JobSpec) -> None:
    summary = retry_failed(with_errors.output.path, ["engine_error"], Silent())
    assert summary.errors == {"null_prompt": 1, "engine_rejected": 1}


def test_nothing_to_retry_repeats_the_summary(with_errors: JobSpec) -> None:
    first = retry_failed(with_errors.output.path, [], Silent())
    assert retry_failed(with_errors.output.path, [], Silent()) == first


def test_an_unknown_code_and_an_unfinished_job_are_refused(with_errors: JobSpec, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="found nonsense; allowed: null_prompt"):
        retry_failed(with_errors.output.path, ["nonsense"], Silent())
    with pytest.raises(OutputError, match="not an output of batchjobs"):
        retry_failed(str(tmp_path), [], Silent())
    (Path(with_errors.output.path) / "part-000001.parquet").unlink()
    with pytest.raises(OutputError, match="is not finished"):
        retry_failed(with_errors.output.path, [], Silent())


def test_a_quarantined_row_can_be_retried(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(engine={"echo": {"raise_rows": [3]}}, run={"max_error_rate": 1})
    assert run_here(job).errors == {"engine_crash": 1}
    spec = Path(job.output.path) / "_batchjobs/spec.yaml"
    spec.write_text(spec.read_text().replace("- 3", "- 300"))
    result = batchjobs("retry-failed", job.output.path, "--code", "engine_crash", "--json")
    assert (result.returncode, json.loads(result.stdout)["errors"]) == (0, {})


def test_explain_shows_prompt_result_and_attempt(with_errors: JobSpec) -> None:
    good = explain_row(with_errors.output.path, 7)
    assert (good["prompt"], good["result"]["output"], good["attempt"]["attempt"]) == ("text 7", "text 7", 1)
    assert good["file"] == "00.parquet, row 7 of it"
    null = explain_row(with_errors.output.path, 2)
    assert (null["prompt"], null["result"]["error_code"]) == (None, "null_prompt")
    shown = batchjobs("explain", with_errors.output.path, "5")
    assert "engine_error" in shown.stdout
    assert "text 5" in shown.stdout


def test_explain_refuses_a_row_that_is_not_there(with_errors: JobSpec) -> None:
    with pytest.raises(OutputError, match="has the rows 0 to 11"):
        explain_row(with_errors.output.path, 12)
