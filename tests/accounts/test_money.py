"""What a run cost, and what it did not have to do."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conftest import MakeJob, run_here, text_table

PRICE = {"usd_per_hour": 3600.0, "api": {"usd_per_1m_input_tokens": 2.0, "usd_per_1m_output_tokens": 8.0}}


def test_the_money_of_a_run_is_split_by_label_and_compared_with_an_api(make_job: MakeJob) -> None:
    summary = run_here(make_job(cost=PRICE))
    cost, seconds = summary.cost, summary.engine_seconds
    assert sum(cost.usd_by_label.values()) == pytest.approx(cost.usd_this_run)
    assert cost.usd_by_label["startup"] == pytest.approx(seconds.startup)
    assert cost.usd_by_label.keys() == seconds.model_dump().keys() - {"held"}
    assert cost.usd_at_api_price == pytest.approx((summary.tokens.prompt * 2 + summary.tokens.output * 8) / 1e6)


def test_without_a_price_nothing_is_said_of_money(make_job: MakeJob) -> None:
    summary = run_here(make_job())
    assert (summary.cost.usd_by_label, summary.cost.usd_at_api_price) == ({}, None)
    assert summary.saved.resume.usd is None


def test_rows_that_earlier_runs_left_are_saved_at_the_speed_of_this_run(make_job: MakeJob) -> None:
    """Row 9 kills the first run: shards 0 and 1 are committed, and row 8 is in the journal."""
    broken = {"max_num_seqs": 1, "echo": {"raise_rows": [9]}}
    run = {"order": "input", "max_restarts": 0}
    failed = run_here(make_job(text_table(12), engine=broken, run=run, cost=PRICE))
    assert (failed.saved.resume.rows, failed.saved.resume.engine_seconds) == (0, 0)
    summary = run_here(make_job(text_table(12), engine={"echo": {"tokens_per_s": 100}}, cost=PRICE))
    saved, held = summary.saved.resume, summary.engine_seconds
    assert (saved.rows, saved.prompt_tokens, saved.output_tokens) == (9, 54, 54)  # "text 0" to "text 8"
    generated = 3 * len("text 9") + 2  # rows 9, 10 and 11
    feeding = held.productive + held.starved + held.tail
    assert saved.engine_seconds == pytest.approx(feeding * (54 + 54) / (2 * generated))
    assert saved.usd == pytest.approx(saved.engine_seconds)


def test_what_a_death_in_this_run_left_is_not_called_saved(make_job: MakeJob) -> None:
    engine = {"max_num_seqs": 1, "echo": {"raise_rows": [2]}}
    summary = run_here(make_job(text_table(4), engine=engine, run={"order": "input", "max_error_rate": 0.5}))
    assert len(summary.attempts) > 1
    assert summary.saved.resume.rows == 0


def test_copies_of_identical_rows_are_saved(make_job: MakeJob) -> None:
    texts = pa.table({"text": ["same"] * 5 + ["other"]})
    job = make_job(texts, sampling={"temperature": 0}, run={"shard_rows": 6}, cost=PRICE)
    saved = run_here(job).saved
    assert (saved.duplicates.rows, saved.duplicates.prompt_tokens, saved.duplicates.output_tokens) == (4, 16, 16)
    assert saved.duplicates.usd == pytest.approx(saved.duplicates.engine_seconds)
    assert (saved.resume.rows, saved.prefix_cache.engine_seconds) == (0, None)


def test_a_run_that_generates_nothing_has_no_speed_to_count_with(make_job: MakeJob) -> None:
    summary = run_here(make_job(pa.table({"text": [None, None]})))
    assert summary.saved.resume.engine_seconds is None
