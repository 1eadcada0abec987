"""`batchjobs report`: what a person finds on the page."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from batchjobs.cli import app
from batchjobs.errors import OutputError
from batchjobs.reports.evidence import Evidence, gather
from batchjobs.reports.page import render, write_report
from batchjobs.reports.source import Source, open_source
from batchjobs.spec import parse_job
from batchjobs.storage.store import open_store
from batchjobs.verify import verify_output
from schemas.summary import Attempt, Rows, Summary
from tests.conftest import MakeJob, run_here, text_table
from tests.reports.samples import BEGAN, bare_summary, full_summary

UNKNOWN = "not known"


@pytest.fixture(scope="module")
def _once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of one run with two failed rows."""
    folder = tmp_path_factory.mktemp("once")
    pq.write_table(text_table(10), folder / "a.parquet")
    job = {
        "name": "nightly", "input": {"path": str(folder / "a.parquet"), "id_column": "id"},
        "prompt": {"column": "text"}, "sampling": {"max_tokens": 100},
        "engine": {"kind": "echo", "echo": {"error_rows": [3, 7]}},
        "output": {"path": str(folder / "out")}, "run": {"shard_rows": 4, "max_error_rate": 1},
        "cost": {"usd_per_hour": 3600},
    }  # fmt: skip
    run_here(parse_job(job))
    return folder / "out"


@pytest.fixture
def finished(_once: Path, tmp_path: Path) -> Path:
    """A copy of that output, to do with it what one wants."""
    shutil.copytree(_once, tmp_path / "out")
    return tmp_path / "out"


def shown(page: str) -> str:
    """The page's text as a person reads it, on one line."""
    body = re.sub(r"<(style|svg|pre)\b.*?</\1>", " ", page[page.index("<body>") :], flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def report_of(output: str | Path) -> str:
    return Path(write_report(open_store(str(output)))).read_text()


def drawn(source: Source, summary: Summary, evidence: Evidence | None = None, **spec: Any) -> str:
    return render(summary, source.plan, evidence or gather(source.parts), {**source.spec, **spec})


def test_a_report_lies_in_the_output_folder_and_its_path_is_printed(finished: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["report", str(finished)])
    file = Path(told.stdout.strip())
    assert told.exit_code == 0, told.output
    assert file == finished / "_batchjobs" / "report.html"
    elsewhere = tmp_path / "elsewhere.html"
    assert write_report(open_store(str(finished)), elsewhere) == str(elsewhere)
    assert elsewhere.read_bytes() == file.read_bytes(), "the same output gives the same page"
    assert verify_output(str(finished)).complete, "a report is no part of the results"


def test_markdown_is_printed_and_nothing_is_written(finished: Path) -> None:
    told = CliRunner().invoke(app, ["report", "--markdown", str(finished)])
    assert told.stdout.startswith("# nightly: completed\n")
    assert not (finished / "_batchjobs" / "report.html").exists()


def test_a_real_run_is_told_with_examples_of_its_errors_and_its_slowest_rows(finished: Path) -> None:
    page = report_of(finished)
    text = shown(page)
    for words in (
        "10 rows in 1 file",
        "Rows ok 8 of 10",
        "engine_error · 2 rows · 20.0%",
        "row 3 · id-3",
        "row 7 · id-7",
    ):
        assert words in text
    assert "Every row of the 3 parts" in text
    assert page.count("<svg") == 5  # output, prompts and requests over time, both lengths
    assert "nightly completed All 10 rows are accounted for." in text
    assert re.search(r"per 1,000 rows that are ok \$\d", text)


def test_everything_that_a_summary_can_know_is_on_the_page(finished: Path) -> None:
    page = drawn(open_source(open_store(str(finished))), full_summary())
    text = shown(page)
    for words in (
        "partial", "2.3%", "2 h 01 min", "$0.00616", "NVIDIA H100 80GB HBM3", "Host 9.0 GiB; GPU 73.0 GiB",
        "KV cache 98.3% of its 412,560 tokens", "38.1% of the tokens looked up", "7.5% of answers are cut",
        "productive 85.6%", "lost 9 min 18 s 7.7% $0.388", "10.1 times", "1 h 45 min", "+15.7%", "18 min 40 s",
        "P50 P95 P99", "34 ms", "repetitive 3,120 0.3%", "the engine ran out of GPU memory", "max_num_seqs 512 -> 256",
        "row 77,123 illegal memory access", "exceeded",
            "total tokens/s went from 31,204 to 24,871 (baseline.max_slowdown 0.15)",
        "engine.version: 0.31.1 -> 0.32.0", "left to vLLM", "prompt_too_long · 20,000 rows · 2.1%", "1,204",
    ):  # fmt: skip
        assert words in text, words
    assert page.count("<svg") == 6
    assert len(page) < 300_000


def test_what_an_old_summary_does_not_know_is_called_so_and_never_0(finished: Path) -> None:
    source = open_source(open_store(str(finished)))
    rows = Rows(planned=10, total=10, ok=10, generated=10)
    text = shown(drawn(source, bare_summary(rows=rows), Evidence()))
    for words in (
        f"Output tokens/s {UNKNOWN}", f"Wall clock {UNKNOWN}", f"Cost {UNKNOWN}", f"Host {UNKNOWN}; GPU {UNKNOWN}",
        f"preemptions {UNKNOWN}", f"empty {UNKNOWN} {UNKNOWN}", "Not known: the summary has no timeline",
        "Not known: no engine-seconds", "There is no earlier run of this job to compare with",
    ):  # fmt: skip
        assert words.lower() in text.lower(), words
    assert "$0" not in text
    assert "0 s " not in text


@pytest.mark.parametrize(
    "rows", [Rows(), Rows(planned=10, total=10, error=10, rejected=10)], ids=["none", "all failed"]
)
def test_a_job_without_one_good_row_has_a_report(make_job: MakeJob, rows: Rows) -> None:
    table = pa.table({"id": ["a"] * rows.total, "text": pa.array([None] * rows.total, pa.string())})
    job = make_job(table)
    run_here(job)
    text = shown(report_of(job.output.path))
    assert f"Rows ok 0 of {rows.total}" in text
    assert ("null_prompt · 10 rows · 100.0%" in text) == bool(rows.total)
    assert ("Error rate not known" in text) == (not rows.total)


def test_texts_of_rows_are_shown_and_never_run(make_job: MakeJob) -> None:
    attack, arabic, column = (
        "<script>alert(1)</script><img src=x onerror=y>",
        "مرحبا بالعالم",
        "a <b>long</b> name " * 20,
    )
    texts = [attack, arabic, "again and " * 10_000]
    table = pa.table({column: [attack, "b", "c"], "text": texts})
    output = {"prefix": "llm_", "keep_columns": [column]}
    job = make_job(table, input={"id_column": column}, sampling={"max_tokens": 20_000}, name=attack, output=output)
    run_here(job)
    page = report_of(job.output.path)
    assert "<script" not in page
    assert "<img" not in page
    assert page.count(html.escape(attack)) >= 3, "as the job's name, as an id and as an answer"
    assert f'dir="auto">{arabic}' in page
    assert "Truncated, for example row 2 · c · 20,000 tokens again and" in shown(page)
    assert "Repetitive, for example row 2" in shown(page)
    assert len(page) < 100_000, "a long answer is cut"


def test_empty_answers_have_examples_and_a_column_that_is_not_kept_is_not_missed(make_job: MakeJob) -> None:
    job = make_job(input={"id_column": "id"}, engine={"echo": {"answer": " "}}, output={"keep_columns": []})
    run_here(job)
    text = shown(report_of(job.output.path))
    assert "Empty, for example row 0 · 1 token white space only" in text
    assert "id-0" not in text


def test_an_interrupted_job_shows_what_its_parts_tell(finished: Path) -> None:
    (finished / "_batchjobs" / "summary.json").unlink()
    (finished / "part-000002.parquet").unlink()
    text = shown(report_of(finished))
    assert "not finished 2 of 3 shards are committed" in text
    assert f"batchjobs status {finished}" in text
    assert "Rows ok 6 of 10" in text
    assert "Wall clock not known" in text
    assert "engine_error · 2 rows · 25.0%" in text


def test_a_damaged_part_is_named_and_the_rest_is_shown(finished: Path) -> None:
    part = finished / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:100])
    text = shown(report_of(finished))
    assert "Parts that could not be read: part-000001.parquet" in text
    assert "row 3 · id-3" in text


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is not an output of batchjobs"):
        write_report(open_store(str(tmp_path)))
    assert not list(tmp_path.iterdir())


def test_ten_thousand_attempts_make_a_short_list_that_keeps_those_with_trouble(finished: Path) -> None:
    many = [Attempt(replica=0, attempt=n, started=BEGAN, held_s=1, cause="done") for n in range(1, 10_001)]
    many[4] = many[4].model_copy(update={"cause": "hang", "failure": "silent for 120 s"})
    page = drawn(open_source(open_store(str(finished))), full_summary(attempts=many))
    assert "hang: silent for 120 s" in shown(page)
    assert "9,970 more attempts are not shown: 10,000 in all" in shown(page)
    assert len(page) < 300_000


def test_a_baseline_is_judged_only_where_the_job_sets_thresholds(finished: Path) -> None:
    source, summary = open_source(open_store(str(finished))), full_summary()
    assert summary.previous is not None
    calm = [change.model_copy(update={"breach": None}) for change in summary.previous.changes]
    summary.previous = summary.previous.model_copy(update={"changes": calm, "same_settings": True})
    assert "the job sets no thresholds to judge it by" in shown(drawn(source, summary))
    assert "Within every threshold" in shown(drawn(source, summary, baseline={"max_slowdown": 0.1}))


def test_secrets_stay_out(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "resolved-secret")
    source = open_source(open_store(str(finished)))
    died = full_summary().attempts[0].model_copy(update={"evidence": ["403 for resolved-secret and written-secret"]})
    page = drawn(
        source,
        full_summary(attempts=[died], output="s3://user:password@lake/out"),
        engine={"kind": "vllm", "env": {"HF_TOKEN": "written-secret", "VLLM_LOGGING_LEVEL": "DEBUG"}},
        input={
            "path": "https://host/a?sig=1&token=abcdef",
            "storage_options": {"secret": "${LAKE_SECRET}", "key": "AKIA"},
        },
        sampling={"max_tokens": 64},
    )
    for secret in ("resolved-secret", "written-secret", "AKIA", "password", "abcdef"):
        assert secret not in page
    for harmless in ("${LAKE_SECRET}", "DEBUG", "max_tokens: 64"):
        assert harmless in page


def test_half_a_surrogate_pair_in_a_name_does_not_stop_the_report(finished: Path) -> None:
    page = drawn(open_source(open_store(str(finished))), full_summary(job="cut \ud83d here"))
    assert "cut ? here" in page.encode("utf-8", "replace").decode()


def test_a_report_of_an_object_store_is_put_there(make_job: MakeJob, s3: dict[str, Any]) -> None:
    job = make_job(output={"path": "s3://lake/report", "storage_options": s3})
    run_here(job)
    assert write_report(open_store("s3://lake/report")) == "s3://lake/report/_batchjobs/report.html"
