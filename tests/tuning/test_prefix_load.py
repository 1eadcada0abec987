"""The load of the prefix-cache benchmark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import InputError, SpecError
from batchjobs.tuning.prefix_load import independent, load_job
from tests.conftest import MakeJob, text_table


def test_independent_prompts_have_the_same_lengths_and_no_beginning_in_common() -> None:
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10 + n] for n in range(20)] + [[1, 2, 3], [7, 8]]
    found = list(independent(prompts))
    assert [len(prompt) for prompt in found] == [len(prompt) for prompt in prompts] * 2
    long = [prompt for prompt in [*found, *prompts[:1]] if len(prompt) == 10]
    assert len({tuple(prompt[:8]) for prompt in long}) == len(long)  # the first eight tokens tell all apart
    assert {token for prompt in found for token in prompt} <= {token for prompt in prompts for token in prompt}
    assert found[0][:6] == prompts[0][:6]
    assert found[0][8:] == prompts[0][8:]


def test_prompts_of_too_few_tokens_are_refused() -> None:
    with pytest.raises(SpecError, match="cannot all begin differently"):
        list(independent([[1, 1, 1]] * 3))


def test_a_load_is_four_calls_of_the_same_lengths_with_the_originals_in_the_middle_twice(
    make_job: MakeJob, tmp_path: Path
) -> None:
    params = pa.array([{"temperature": n / 10} for n in range(6)], pa.struct([("temperature", pa.float64())]))
    table = text_table(6).append_column("params", params).append_column("empty", pa.array([None, *"abcde"]))
    job = make_job(table, prompt={"template": "{{ text }} {{ empty }}"}, sampling={"per_row_column": "params"})
    load, requests = load_job(job, tmp_path / "load.parquet")
    assert requests == 5  # the row with the null gives none
    found = pq.read_table(tmp_path / "load.parquet").to_pydict()
    calls = [found["ids"][5 * call : 5 * (call + 1)] for call in range(4)]
    assert calls[1] == calls[2] == [list(f"text {n} {c}".encode()) for n, c in enumerate("abcde", 1)]
    assert calls[0] != calls[3]
    assert [len(ids) for ids in calls[0]] == [len(ids) for ids in calls[1]]
    assert [row["temperature"] for row in found["params"]] == [0.1, 0.2, 0.3, 0.4, 0.5] * 4
    assert (load.run.feed, load.run.order, load.run.deduplicate) == ("generate", "input", "never")
    assert load.run.shard_rows == 5
    assert load.prompt.token_ids_column == "ids"


def test_a_sample_without_a_request_is_refused(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(pa.table({"text": ["", " "]}))
    with pytest.raises(InputError, match="No row of the sample gives a request"):
        load_job(job, tmp_path / "load.parquet")
