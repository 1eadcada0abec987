"""A sample of a job's rows: spread over the dataset, few places, the rows that will be generated."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.engines.base import Request
from batchjobs.planning.plan import make_plan, read_dataset
from batchjobs.settings.sample import Sample, max_tokens_of, places, take_sample
from schemas.job import JobSpec
from schemas.plan import Plan
from tests.conftest import MakeJob


def planned(job: JobSpec) -> Plan:
    return make_plan(job, job, read_dataset(job))


def sampled(job: JobSpec, shards: list[int] | None = None, **options: Any) -> Sample:
    dataset = read_dataset(job)
    plan = make_plan(job, job, dataset)
    paths = [file.path for file in plan.files]
    return take_sample(job, plan, dataset.fs, paths, shards or range(len(plan.shards)), **options)


def lengths(*sizes: int) -> pa.Table:
    """Rows whose text has so many bytes: the tokens of a job without a model."""
    return pa.table({"text": ["x" * size for size in sizes]})


def test_every_row_of_a_small_job_is_looked_at(make_job: MakeJob) -> None:
    sample = sampled(make_job(lengths(*range(1, 101)), sampling={"max_tokens": 10}))
    assert sample.prompts == list(range(1, 101))
    assert (sample.read, sample.longest, sample.p95()) == (100, 110, 105)


def test_a_big_job_is_looked_at_in_eight_places(make_job: MakeJob) -> None:
    job = make_job(lengths(*[n // 100 for n in range(100, 4_100)]), run={"shard_rows": 300})
    sample = sampled(job)
    assert sample.read == 256
    assert sorted(set(sample.prompts)) == [1, 6, 11, 16, 21, 26, 31, 36]
    assert [place.first_row for place in places(planned(job), range(14))] == [500 * n for n in range(8)]


def test_only_the_shards_that_are_left_are_looked_at(make_job: MakeJob) -> None:
    job = make_job(lengths(*[n // 100 for n in range(100, 4_100)]), run={"shard_rows": 1_000})
    assert min(sampled(job, [2, 3]).prompts) == 21


def test_no_place_lies_deep_inside_a_row_group(make_job: MakeJob) -> None:
    job = make_job(run={"shard_rows": 50_000})
    pq.write_table(lengths(*[1] * 200_000), f"{job.input.path}/00.parquet", row_group_size=200_000)
    found = [place.first_row for place in places(planned(job), range(4))]
    assert len(found) == 8
    assert found == sorted(found)
    assert max(found) < 16_384


def test_rows_that_are_filtered_or_bad_are_read_but_not_counted(make_job: MakeJob) -> None:
    job = make_job(
        pa.table({"text": ["aa", None, "bbbb", "cccccc"], "n": [1, 1, 0, 1]}),
        input={"filter": "n = 1"},
        sampling={"max_tokens": 10},
    )
    sample = sampled(job)
    assert (sample.read, sample.prompts) == (4, [2, 6])
    assert sample.tokens_of(400) == 100 * (12 + 16)


def test_rows_have_their_own_max_tokens(make_job: MakeJob) -> None:
    table = pa.table({"text": ["aa", "aa"], "params": [{"max_tokens": 70}, {"max_tokens": None}]})
    sample = sampled(make_job(table, sampling={"max_tokens": 10, "per_row_column": "params"}))
    assert sample.totals == [72, 12]


def test_what_is_known_of_answers_shortens_totals_and_not_the_longest(make_job: MakeJob) -> None:
    job = make_job(lengths(5, 50), sampling={"max_tokens": 100})
    sample = sampled(job, expected=lambda request: 2 * len(request.token_ids))
    assert (sample.totals, sample.longest) == ([15, 150], 150)
    assert sampled(job, expected=lambda request: 10_000).totals == [105, 150]


def test_rows_that_cannot_be_read_now_are_left_out(make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    job = make_job(lengths(1, 2), lengths(3, 4), run={"shard_rows": 2})
    dataset = read_dataset(job)
    plan = make_plan(job, job, dataset)
    pq.write_table(lengths(5), plan.files[0].path)
    sample = take_sample(job, plan, dataset.fs, [file.path for file in plan.files], [0, 1])
    assert (sample.read, sample.prompts) == (2, [3, 4])
    assert "left out of the sample" in caplog.text


def test_without_rows_nothing_is_known(make_job: MakeJob) -> None:
    sample = sampled(make_job(lengths()))
    assert (sample.read, sample.totals, sample.tokens_of(0)) == (0, [], 0.0)


@pytest.mark.parametrize("max_tokens", [1, 20])
def test_nobody_knows_better_than_max_tokens(max_tokens: int) -> None:
    assert max_tokens_of(Request(0, [1, 2], max_tokens)) == max_tokens
