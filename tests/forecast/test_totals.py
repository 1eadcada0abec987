"""Totals from a sample: near the truth, and the truth inside of the interval that is stated."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from batchjobs.describe import describe
from batchjobs.forecast.totals import prompt_tokens, student
from batchjobs.settings.sample import PlaceSums
from batchjobs.spec import parse_job
from bench.workloads import MODEL, WORKLOADS
from schemas.figures import Interval
from tests.conftest import MakeJob


def places(*prompts: int, rows: int = 10) -> list[PlaceSums]:
    """Places whose prompts all have so many tokens, of 4 bytes each."""
    return [PlaceSums(rows, 4 * tokens * rows, [(tokens, 1)] * rows) for tokens in prompts]


def found(*prompts: int, rows: int, footer_bytes: float | None = None) -> Interval:
    interval, _ = prompt_tokens(places(*prompts), rows, footer_bytes)
    assert interval is not None
    return interval


MIXED = (100, 120, 80, 110, 90, 130, 70, 100, 105, 95)


def test_all_rows_are_counted_exactly() -> None:
    assert found(100, 50, rows=20) == Interval(low=1_500, expected=1_500, high=1_500)


def test_a_sample_gives_an_interval_around_its_mean() -> None:
    interval = found(*MIXED, rows=10_000)
    assert interval.expected == pytest.approx(1_000_000)
    assert interval.low < 950_000
    assert interval.high > 1_050_000


def test_the_bytes_of_all_rows_correct_a_sample_that_was_unlucky() -> None:
    truth = 1_040_000
    interval = found(*MIXED, rows=10_000, footer_bytes=4 * truth)
    plain = found(*MIXED, rows=10_000)
    assert interval.expected == pytest.approx(truth)
    assert interval.high - interval.low < plain.high - plain.low


def test_bytes_that_are_counted_otherwise_are_not_used() -> None:
    interval, how = prompt_tokens(places(*MIXED), 10_000, 400_000.0)
    assert interval is not None
    assert interval.expected == pytest.approx(1_000_000)
    assert "not by bytes" in how


def test_few_places_give_no_interval_and_no_rows_nothing() -> None:
    assert prompt_tokens(places(100, 50), 1_000)[1].endswith("too few places for an interval.")
    assert prompt_tokens([], 1_000)[0] is None


def test_the_quantile_is_that_of_the_tables() -> None:
    assert [student(freedom) for freedom in (5, 10, 63)] == pytest.approx([2.571, 2.228, 1.998], rel=0.01)


@pytest.mark.skipif(not MODEL.is_dir(), reason="needs demo/model: make demo builds it")
def test_a_thousand_docstrings_tell_the_tokens_of_all_within_3_percent(tmp_path: Path) -> None:
    file = WORKLOADS["docstrings"].write(tmp_path, 100_000)  # all that there are
    job = parse_job(_absolute(file))
    sampled, counted = describe(job), describe(job, full=True)
    assert 1_000 <= sampled.problems.looked_at < counted.problems.looked_at / 5
    assert sampled.totals.prompt_tokens is not None
    assert counted.totals.prompt_tokens is not None
    truth, foreseen = counted.totals.prompt_tokens.expected, sampled.totals.prompt_tokens
    assert foreseen.expected == pytest.approx(truth, rel=0.03)
    assert foreseen.low <= truth <= foreseen.high


def _absolute(file: Path) -> dict[str, object]:
    import yaml

    spec: dict[str, object] = yaml.safe_load(file.read_text())
    return {**spec, "input": {"path": str(file.parent / "data")}, "output": {"path": str(file.parent / "out")}}


def test_long_and_short_files_are_both_in_the_sample(make_job: MakeJob) -> None:
    short, long = (pa.table({"text": ["x" * size] * 5_000}) for size in (10, 1_000))
    totals = describe(make_job(short, long, run={"shard_rows": 1_000})).totals
    assert totals.prompt_tokens is not None
    assert totals.prompt_tokens.low <= 5_000 * 1_010 <= totals.prompt_tokens.high
    assert totals.prompt_tokens.expected == pytest.approx(5_000 * 1_010, rel=0.05)
