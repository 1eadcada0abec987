"""What `batchjobs plan` says of a job: rows, problems, tokens, what is not known; and what a run foresees by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.describe import describe
from batchjobs.errors import SpecError
from batchjobs.reports.plan import text
from tests.conftest import MakeJob, batchjobs, run_here, text_table, write_spec
from tests.models import word_model


def test_problems_are_counted_and_shown_by_example(make_job: MakeJob) -> None:
    texts = ["a", None, "", "b", "b", "b", "x" * 60]
    job = make_job(pa.table({"id": range(7), "text": texts}), engine={"echo": {"max_model_len": 50}})
    found = describe(job)
    problems = found.problems
    assert (problems.looked_at, problems.null, problems.empty, problems.too_long) == (7, 1, 1, 1)
    assert problems.duplicate == 2
    assert {(example.row, example.problem) for example in problems.examples} == {
        (1, "null"), (2, "empty"), (4, "duplicate"), (5, "duplicate"), (6, "too_long"),
    }  # fmt: skip
    assert "row 4: duplicate: the same request as row 3" in text(found)


def test_rows_that_the_filter_removes_are_no_problem(make_job: MakeJob) -> None:
    table = pa.table({"text": ["a", None, "b"], "n": [1, 0, 1]})
    problems = describe(make_job(table, input={"filter": "n = 1"})).problems
    assert (problems.looked_at, problems.filtered, problems.null) == (3, 1, 0)


def test_a_thousand_rows_spread_over_the_dataset_are_looked_at_or_all(make_job: MakeJob) -> None:
    job = make_job(*(text_table(4_000, first) for first in (0, 4_000)), run={"shard_rows": 1_000})
    sampled, full = describe(job), describe(job, full=True)
    assert 1_000 <= sampled.problems.looked_at <= 1_100
    assert full.problems.looked_at == full.prompt_tokens.count == 8_000
    assert sampled.totals.prompt_tokens is not None
    assert full.totals.prompt_tokens is not None
    assert full.totals.prompt_tokens.expected == sum(len(f"text {n}") for n in range(8_000))
    assert sampled.totals.prompt_tokens.expected == pytest.approx(full.totals.prompt_tokens.expected, rel=0.01)


def test_only_a_full_look_can_tell_whether_ids_are_unique(make_job: MakeJob) -> None:
    job = make_job(pa.table({"id": [1, 2, 2, 3, 3], "text": list("abcde")}), input={"id_column": "id"})
    assert describe(job).problems.duplicate_ids is None
    assert describe(job, full=True).problems.duplicate_ids == 2


def test_what_prompts_share_at_their_beginning_is_told(make_job: MakeJob) -> None:
    table = pa.table({"text": [f"{'shared ' * 32}{n}" for n in range(100)]})
    found = describe(make_job(table)).shared_prefix
    assert found is not None
    assert 0.95 < found < 1
    assert describe(make_job(text_table(50))).shared_prefix == 0


def test_the_histogram_covers_every_prompt(make_job: MakeJob) -> None:
    job = make_job(pa.table({"text": ["x" * n for n in range(1, 101)]}))
    tokens = describe(job).prompt_tokens
    assert (tokens.count, tokens.p50, tokens.max, tokens.mean) == (100, pytest.approx(50, rel=0.02), 100, 50.5)
    assert sum(number for _, number in tokens.histogram) == 100
    bars = [line for line in text(describe(job)).splitlines() if "█" in line]
    numbers = [int(line.rsplit(maxsplit=1)[1]) for line in bars]
    assert (sum(numbers), len(numbers)) == (100, 7)
    assert numbers == pytest.approx([1, 2, 4, 8, 16, 32, 37], abs=2)  # bins are 8 % wide


def test_a_second_run_knows_how_long_answers_are_and_how_long_it_takes(make_job: MakeJob) -> None:
    job = make_job(text_table(400), engine={"max_num_seqs": 8, "echo": {"tokens_per_s": 6_000}},
                   cost={"usd_per_hour": 3.6}, run={"shard_rows": 100})  # fmt: skip
    before = describe(job)
    assert before.output_tokens is None
    assert "no earlier run" in before.unknown["output_tokens"]
    assert before.estimate.seconds is None
    assert before.unknown["estimate.seconds"] == before.estimate.basis
    first = run_here(job)
    assert first.foreseen is not None
    assert first.foreseen.seconds is None
    again = job.model_copy(update={"output": job.output.model_copy(update={"path": f"{job.output.path}-2"})})
    foreseen = describe(again)
    assert foreseen.output_tokens is not None
    assert foreseen.output_tokens.mean == pytest.approx(first.tokens.output / 400, rel=0.05)
    assert foreseen.estimate.usd is not None
    second = run_here(again)
    assert second.foreseen is not None
    assert second.foreseen.seconds is not None
    assert second.foreseen.seconds.low <= first.seconds.wall <= second.foreseen.seconds.high
    assert "the latest run of this job" in second.foreseen.basis


def test_a_resumed_run_foresees_what_is_left(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(400), engine={"echo": {"tokens_per_s": 6_000}}, run={"shard_rows": 100})
    run_here(job)
    for part in (0, 1, 2):
        (Path(job.output.path) / f"part-{part:06d}.parquet").unlink()
    some = run_here(job).foreseen
    assert some is not None
    tokens = int(some.basis.split()[0].replace(",", ""))
    whole = describe(job).totals
    assert whole.prompt_tokens is not None
    assert whole.output_tokens is not None
    assert tokens == pytest.approx(0.75 * (whole.prompt_tokens.expected + whole.output_tokens.expected), rel=0.02)


def test_a_model_that_is_not_here_leaves_the_rest_of_the_plan(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # as without a network, but at once
    job = make_job(text_table(20), model={"name": "nobody/unheard-of"}, engine={"kind": "vllm"})
    shown = batchjobs("plan", "--json", "--device", "L4", write_spec(job, tmp_path / "job.yaml"))
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert (found["rows"], found["shards"], found["prompt_tokens"]["count"]) == (20, 5, 0)
    assert found["capacity"]["device_memory_bytes"] == 23_034 * 2**20
    for key in ("prompt_tokens", "totals.prompt_tokens", "estimate.seconds", "capacity.weights_bytes",
                "capacity.kv_bytes_per_token", "capacity.kv_cache_tokens"):  # fmt: skip
        assert found["unknown"][key]
    assert "nobody/unheard-of cannot be loaded" in found["unknown"]["problems"]


def test_a_model_without_weights_still_has_its_tokens_counted(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(20), model={"name": str(word_model(tmp_path / "model"))}, engine={"kind": "vllm"})
    found = describe(job, device="H100")
    assert found.prompt_tokens.mean == 2
    assert found.capacity.kv_bytes_per_token == 2 * 2 * 1 * 64 * 2
    assert found.capacity.weights_bytes is None
    assert "not on this machine" in found.unknown["capacity.weights_bytes"]
    assert "weights are not on this machine" in found.unknown["estimate.seconds"]


def test_a_device_is_named_or_told_by_its_memory(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(text_table(20), model={"name": str(word_model(tmp_path / "model"))}, engine={"kind": "vllm"})
    assert describe(job, device="NVIDIA H100 80GB HBM3").capacity.device == "H100"
    assert describe(job, memory="24GiB").capacity.device_memory_bytes == 24 * 2**30
    assert describe(job, device="Abacus 9", memory="80GB").capacity.device_memory_bytes == 80 * 10**9
    assert describe(job, device="cpu", memory="8GiB").capacity.device == "cpu"
    with pytest.raises(SpecError, match="--device: found Abacus 9; allowed: cpu, T4, "):
        describe(job, device="Abacus 9")
    with pytest.raises(SpecError, match="--memory: found lots; allowed: a size such as 24GiB"):
        describe(job, memory="lots")


def test_a_dataset_without_rows_is_described_and_run(make_job: MakeJob) -> None:
    job = make_job(pa.table({"text": pa.array([], pa.string())}))
    found = describe(job)
    assert (found.rows, found.prompt_tokens.count, found.totals.prompt_tokens) == (0, 0, None)
    assert describe(job, full=True).totals.prompt_tokens is None
    assert "totals.prompt_tokens" in found.unknown
    assert run_here(job).state == "completed"


def test_totals_hold_for_rows_that_grow_inside_one_big_row_group(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 50_000
    job = make_job(run={"shard_rows": rows})
    texts = ["x" * (1 + n // 500) for n in range(rows)]
    pq.write_table(pa.table({"text": texts}), f"{job.input.path}/00.parquet", row_group_size=rows)
    totals = describe(job).totals
    assert totals.prompt_tokens is not None
    assert totals.prompt_tokens.low <= sum(map(len, texts)) <= totals.prompt_tokens.high
    assert "were sampled" not in totals.method
    monkeypatch.setattr("batchjobs.describe._DECODED_BYTES", 1_000)
    assert "only the first 16,384 rows were sampled" in describe(job).totals.method
