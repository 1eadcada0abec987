"""What is decided for a job, rule by rule, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from batchjobs.settings.capacity import Capacity
from batchjobs.settings.device import GIB, Device
from batchjobs.settings.sample import Sample
from batchjobs.settings.sizing import Decisions, Facts, decide, lengthened, lines, merged
from batchjobs.settings.speed import Speed
from batchjobs.spec import parse_job
from schemas.job import JobSpec
from schemas.summary import Decision

CPU, OTHER = Device("cpu", "cpu", 24 * GIB, 2), Device("other", "other")
H100, A100 = Device("gpu", "NVIDIA H100 80GB HBM3", 80 * GIB), Device("gpu", "NVIDIA A100-SXM4-80GB", 80 * GIB)
UNKNOWN = Capacity(None, "nobody knows")


def job(max_model_len: int | str | None = None, **engine: Any) -> JobSpec:
    return parse_job({
        "name": "t", "input": {"path": "x"}, "prompt": {"column": "c"}, "sampling": {"max_tokens": 5},
        "model": {"name": "m", "max_model_len": max_model_len}, "engine": engine, "output": {"path": "y"},
    })  # fmt: skip


def sample(prompts: list[int], max_tokens: int = 100) -> Sample:
    totals = [prompt + max_tokens for prompt in prompts]
    return Sample(len(prompts), prompts, totals, max(totals, default=0))


def decided(spec: JobSpec | None = None, **facts: Any) -> Decisions:
    known: dict[str, Any] = {
        "job": spec or job(), "device": CPU, "capacity": Capacity(46_592, "46,592 tokens", 128), "max_len": 8_192,
        "plain": True, "speed": Speed(1_000, True, "measured"), "sample": sample([400] * 100), "rows": 10_000,
    }  # fmt: skip
    return decide(Facts(**(known | facts)))


def seqs(spec: JobSpec | None = None, **facts: Any) -> int | bool | None:
    return decided(spec, **facts)["max_num_seqs"].value


def test_as_many_sequences_run_as_fit_the_cache_at_p95() -> None:
    lengths = [100] * 90 + [600] * 9 + [7_000]
    found = decided(sample=sample(lengths))["max_num_seqs"]
    assert found.value == 46_592 // 128 // 6  # 700 tokens are 6 blocks
    assert found.reason == (
        "The least of 60 (46,592 tokens, and P95 of 100 sampled rows is 700); 256 (vLLM's own number here); "
        "10,000 (rows left)."
    )


def test_no_more_run_than_vllm_would_by_itself() -> None:
    huge = Capacity(10**9, "huge")
    assert seqs(capacity=huge) == 256
    assert seqs(job(tensor_parallel_size=2), capacity=huge) == 512
    assert seqs(device=A100, capacity=huge) == 256
    assert seqs(job(extra={"performance_mode": "throughput"}), device=A100, capacity=huge) == 512
    assert seqs(job(enforce_eager=True), device=H100, capacity=huge) == 1024


def test_no_more_run_on_a_gpu_than_cuda_graphs_are_captured_for() -> None:
    huge = Capacity(10**9, "huge")
    assert seqs(job(enforce_eager=False), device=H100, capacity=huge) == 512
    extra = {"max_cudagraph_capture_size": 1024}
    assert seqs(job(enforce_eager=False, extra=extra), device=H100, capacity=huge) == 1024


def test_no_more_run_than_there_are_rows_and_at_least_one() -> None:
    assert seqs(rows=7) == 7
    assert seqs(rows=7, device=H100) == 8
    assert seqs(capacity=Capacity(100, "tiny")) == 1
    assert seqs(rows=0) == 1


def test_on_a_gpu_they_are_a_multiple_of_eight_that_fits() -> None:
    assert seqs(device=A100, capacity=Capacity(500 * 47, "", 1)) == 40
    assert seqs(device=A100, capacity=Capacity(500 * 5, "", 1)) == 5
    assert seqs(capacity=Capacity(500 * 47, "", 1)) == 47


def test_what_vllm_would_refuse_is_not_chosen() -> None:
    assert seqs(job(max_num_batched_tokens=50)) == 50
    assert seqs(job(extra={"max_num_active_seqs": 20}), rows=3) == 20


def test_an_unknown_cache_is_left_to_vllm() -> None:
    found = decided(capacity=UNKNOWN)["max_num_seqs"]
    assert (found.value, found.reason) == (None, "The KV cache's size is not known: nobody knows.")
    assert lines({"max_num_seqs": found}) == [f"max_num_seqs: left to vLLM. {found.reason}"]


def test_explicit_numbers_are_obeyed() -> None:
    spec = job(max_model_len=64, max_num_seqs=9_999, max_num_batched_tokens=9_999, enforce_eager=False)
    assert decided(spec) == {}


def batched(spec: JobSpec | None = None, **facts: Any) -> int | bool | None:
    return decided(spec, **facts)["max_num_batched_tokens"].value


def test_a_step_has_vllms_own_number_of_tokens() -> None:
    huge = Capacity(10**9, "huge")
    assert batched(capacity=huge) == 4_096
    assert batched(device=H100, capacity=huge) == 16_384
    assert batched(device=A100, capacity=huge) == 8_192


def test_but_no_more_than_cache_and_job_can_use() -> None:
    assert batched(capacity=Capacity(1_280, "", 128)) == 1_280
    assert batched(rows=2, sample=sample([100] * 10)) == 512  # 2 x 2 sequences x 100, rounded up to 256
    assert batched(job(max_num_seqs=3), sample=sample([100] * 10), capacity=UNKNOWN) == 768


def test_and_no_less_than_max_num_seqs() -> None:
    found = decided(job(max_num_seqs=5_000))["max_num_batched_tokens"]
    assert (found.value, "no less than max_num_seqs" in found.reason) == (5_000, True)


def test_a_model_whose_limits_are_unknown_leaves_the_step_to_vllm() -> None:
    assert batched(plain=False) is None
    assert batched(job(max_num_seqs=5_000), plain=False) == 5_000
    assert batched(job(extra={"enable_chunked_prefill": False})) is None


def test_an_unknown_device_leaves_everything_to_vllm() -> None:
    assert {decision.value for decision in decided(device=OTHER, capacity=UNKNOWN).values()} == {None}


def length(**facts: Any) -> int | bool | None:
    return decided(job(max_model_len="auto"), **facts)["max_model_len"].value


def test_the_context_is_twice_what_the_longest_sampled_row_may_need() -> None:
    assert length(sample=sample([10, 900])) == 2_048  # 2 x 1,000 rounded up to 256
    assert length(sample=sample([10])) == 256


def test_but_no_longer_than_the_models_own_and_what_the_cache_holds() -> None:
    assert length(sample=sample([5_000])) is None  # the model's own stays
    assert length(sample=sample([9_000])) is None
    assert length(sample=sample([900]), capacity=Capacity(1_280, "", 128)) == 1_280
    assert length(sample=sample([900]), max_len=None) is None
    assert length(sample=sample([])) is None


def test_a_context_that_is_not_asked_for_is_not_chosen() -> None:
    assert "max_model_len" not in decided()


def eager(spec: JobSpec | None = None, **facts: Any) -> int | bool | None:
    return decided(spec, **facts)["enforce_eager"].value


def test_a_job_too_small_to_pay_for_compiling_runs_eager() -> None:
    # 500 tokens a row: 9 % of an hour pay for 45 s, 9 % of five minutes do not
    assert eager(rows=7_200) is False
    found = decided(rows=600)["enforce_eager"]
    assert found.value is True
    assert found.reason == (
        "Compiling takes about 45 s and would save about 25 s of 300 s: 300,000 tokens at 1,000 per second (measured)."
    )


def test_on_a_gpu_compiling_pays_sooner() -> None:
    assert (eager(rows=600, device=H100), eager(rows=200, device=H100)) == (False, True)


def test_a_speed_measured_when_compiled_is_no_speed_without() -> None:
    # 18 % more time for the same tokens decides here
    rows = 1_050
    assert eager(rows=rows, speed=Speed(1_000, True, "")) is True
    assert eager(rows=rows, speed=Speed(1_000, False, "")) is False


def test_who_says_how_to_compile_is_obeyed() -> None:
    assert eager(job(extra={"optimization_level": 1}), rows=1) is False


def test_the_echo_engine_decides_a_context_only() -> None:
    assert set(decided(job(kind="echo", max_model_len="auto"))) == {"max_model_len"}
    assert decided(job(kind="echo")) == {}


def test_what_deaths_have_taught_goes_over_what_was_decided() -> None:
    own = {"max_num_seqs": Decision(value=64, reason=""), "enforce_eager": Decision(value=False, reason=""),
           "max_num_batched_tokens": Decision(value=None, reason="")}  # fmt: skip
    assert merged(own, {}) == {"max_num_seqs": 64, "enforce_eager": False}
    assert merged(own, {"max_num_seqs": 32, "enforce_eager": True}) == {"max_num_seqs": 32, "enforce_eager": True}
    assert merged(own, {"max_num_seqs": 128, "gpu_memory_utilization": 0.8}) == {
        "max_num_seqs": 64, "enforce_eager": False, "gpu_memory_utilization": 0.8,
    }  # fmt: skip


def test_a_context_that_was_raised_says_for_which_row() -> None:
    found = lengthened({}, 1_024, "row 7 may need 600 tokens\nTraceback")
    assert found["max_model_len"].text() == "1,024. Raised to 1,024: row 7 may need 600 tokens."


@pytest.mark.parametrize(("rows", "p95"), [(1, 0), (20, 18), (21, 19), (100, 94), (256, 243)])
def test_p95_is_a_length_that_95_percent_do_not_exceed(rows: int, p95: int) -> None:
    assert sample(list(range(rows)), max_tokens=0).p95() == p95
