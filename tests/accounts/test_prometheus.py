"""The summary as Prometheus text."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchjobs.accounts.prometheus import prometheus_text
from batchjobs.storage.output import METRICS, SUMMARY
from schemas.summary import Summary
from tests.conftest import MakeJob, run_here, text_table

COST = {"usd_per_hour": 3.0, "api": {"usd_per_1m_input_tokens": 2.0, "usd_per_1m_output_tokens": 8.0}}


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and labels; every metric has a help text and no sample is there twice."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type == "gauge"
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def test_the_file_beside_the_summary_has_the_same_numbers(make_job: MakeJob) -> None:
    job = make_job(text_table(10), name='nightly "a"', cost=COST, engine={"echo": {"error_rows": [3]}})
    run_here(job)
    output = Path(job.output.path)
    summary = Summary.model_validate_json((output / SUMMARY).read_bytes())
    found = samples((output / METRICS).read_text())

    def value(name: str, **labels: str) -> float | None:
        return found.get((f"batchjobs_{name}", frozenset({"job": 'nightly "a"', **labels}.items())))

    assert value("job_state", state=summary.state) == 1
    assert sum(v for (name, _), v in found.items() if name == "batchjobs_job_state") == 1
    assert value("exit_code") == summary.exit_code
    assert (value("rows", state="ok"), value("rows", state="error")) == (summary.rows.ok, summary.rows.error) == (9, 1)
    assert value("row_errors", code="engine_error") == 1
    assert value("tokens", kind="output") == summary.tokens.output
    assert value("run_engine_held_seconds") == summary.engine_seconds.held
    for label in ("startup", "productive", "starved", "tail", "draining", "lost"):
        assert value("run_engine_seconds", label=label) == getattr(summary.engine_seconds, label)
        assert value("run_cost_by_label_usd", label=label) == summary.cost.usd_by_label[label]
    assert value("cost_usd") == summary.cost.usd_total
    assert value("cost_at_api_price_usd") == summary.cost.usd_at_api_price
    assert value("run_seconds", phase="wall") == summary.seconds.wall
    assert value("run_latency_seconds", figure="ttft", quantile="0.95") == summary.latency.ttft_s.p95
    assert value("run_output_length_tokens", quantile="1") == summary.lengths.output_tokens.max
    assert value("answers") == summary.health.answers
    assert value("run_peak_memory_bytes", where="host") == summary.memory.host_peak_bytes
    assert value("run_latency_seconds", figure="tpot", quantile="0.95") is None, "not known is no line, and never 0"
    assert value("run_peak_memory_bytes", where="device") is None


def test_what_is_not_known_has_no_line(make_job: MakeJob) -> None:
    summary = run_here(make_job())
    assert summary.cost.usd_total is None
    assert "usd" not in prometheus_text(summary).decode()


def test_a_run_that_begins_removes_the_numbers_of_the_last_one(make_job: MakeJob) -> None:
    job = make_job(engine={"echo": {"raise_rows": [9]}}, run={"max_restarts": 0, "order": "input"})
    run_here(job)
    file = Path(job.output.path, METRICS)
    before = file.read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchjobs.job._store", lambda prepared, summary: None)  # it is killed before it writes
        run_here(make_job())
    assert 'state="failed"} 1.0' in before
    assert not file.exists()
