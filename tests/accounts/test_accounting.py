"""The summary of a job over its runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from batchjobs.storage.checkpoint import Commit
from schemas.summary import Health
from tests.conftest import MakeJob, run_here, text_table

TEXTS = pa.table({"text": ["fine", "  . ", "no, " * 50, "x" * 120, None, "late"]})


def test_the_health_of_answers_is_counted_over_all_runs(make_job: MakeJob) -> None:
    """The first run commits the first shard of two rows and the second one, and dies on row 5."""
    sampling = {"max_tokens": 160, "temperature": 0}
    run = {"shard_rows": 2, "order": "input", "max_restarts": 0, "max_error_rate": 1.0}
    engine = {"max_num_seqs": 1, "echo": {"raise_rows": [5]}}
    first = run_here(make_job(TEXTS, engine=engine, sampling=sampling, run=run))
    assert (first.state, first.health) == ("failed", Health(answers=4, truncated=1, repetitive=2))
    second = run_here(make_job(TEXTS, sampling=sampling, run=run))
    assert second.health == Health(answers=5, truncated=1, repetitive=2)
    assert second.rows.total == 6, "a row that is null has no answer"


def test_a_part_of_an_older_version_counts_no_answers() -> None:
    old = {"fingerprint": "f", "shard": 0, "attempt": 1, "nonce": "n", "rows": 2, "filtered": 0, "ok": 2}
    commit = Commit.model_validate(old)
    assert (commit.health, commit.reused_from) == (Health(), {})


def test_lengths_are_those_of_the_requests_of_this_run(make_job: MakeJob) -> None:
    texts = pa.table({"text": ["four", "four", "seven.."]})
    job = make_job(texts, sampling={"temperature": 0}, engine={"echo": {"answer": "{prompt}{prompt}"}})
    lengths = run_here(job).lengths
    assert (lengths.prompt_tokens.count, lengths.prompt_tokens.mean, lengths.prompt_tokens.max) == (2, 5.5, 7)
    assert (lengths.output_tokens.p50, lengths.output_tokens.max) == (8, 14)
    assert lengths.output_tokens.histogram == [(8, 1), (14, 1)]


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_timeline_has_every_token_and_row_of_the_run(make_job: MakeJob, replicas: int) -> None:
    job = make_job(text_table(60), engine={"replicas": replicas, "echo": {"tokens_per_s": 120}})
    summary = run_here(job)
    timeline = summary.timeline
    steps = len(timeline.running)
    assert {len(column) for name, column in timeline if name != "step_s"} == {steps}
    assert sum(timeline.output_tokens_per_s) * timeline.step_s >= summary.tokens.output  # the last step is cut short
    assert sum(timeline.output_tokens_per_s[:-1]) * timeline.step_s <= summary.tokens.output + 1e-6
    assert timeline.rows_done[-1] == 60
    assert max(timeline.running) <= 2 * replicas
    assert timeline.running[0] < max(timeline.running), "the engines had to start"


def test_after_a_death_the_timeline_goes_on(make_job: MakeJob) -> None:
    engine = {"max_num_seqs": 2, "echo": {"tokens_per_s": 60, "die_rows": [12]}}
    job = make_job(text_table(20), engine=engine, run={"order": "input", "max_error_rate": 0.5})
    summary = run_here(job)
    assert len(summary.attempts) > 1
    assert summary.timeline.rows_done[-1] == 20
    assert all(value >= 0 for value in summary.timeline.output_tokens_per_s)
