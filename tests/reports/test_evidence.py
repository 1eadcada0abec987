"""What a report reads of the parts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from batchjobs.reports import evidence
from batchjobs.reports.evidence import gather
from batchjobs.reports.lengths import lengths_of
from batchjobs.reports.parts import open_parts
from batchjobs.storage.output import read_plan
from batchjobs.storage.store import open_store
from tests.conftest import MakeJob, run_here
from tests.reports.samples import bare_summary


def test_a_large_job_is_sampled_evenly_and_rare_errors_are_found_all_the_same(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a b c"] * 20 + ["a b c d e f"] * 20
    run_here(
        job := make_job(pa.table({"text": texts}), engine={"echo": {"error_rows": [7]}}, run={"max_error_rate": 1})
    )
    store = open_store(job.output.path)
    plan = read_plan(store)
    assert plan is not None
    parts = open_parts(store, plan)
    whole = lengths_of(bare_summary(), gather(parts))
    monkeypatch.setattr(evidence, "MOST_PARTS", 4)
    monkeypatch.setattr(evidence, "MOST_ROWS", 8)
    found = gather(parts)
    sampled = lengths_of(bare_summary(), found)
    assert (whole.prompt.count, sampled.prompt.count) == (40, 8)
    assert whole.prompt.mean == sampled.prompt.mean
    assert sampled.source == "A sample of 8 rows, evenly spread, of the 10 parts, over all runs."
    assert [row.row for row in found.examples.errors["engine_error"]] == [7]
    assert {row.row // 20 for row in found.numbers.slowest} == {0, 1}, "from both halves"


def test_percentiles_are_those_of_the_sorted_lengths() -> None:
    numbers = evidence.Numbers(rows=100)
    numbers.prompt_tokens.update(dict.fromkeys(range(1, 101), 1))
    known = lengths_of(bare_summary(), evidence.Evidence(rows=100, parts=1, numbers=numbers)).prompt
    assert (known.mean, known.p50, known.p95, known.p99, known.max) == (50.5, 50, 95, 99, 100)
