"""What a run measured is there for the next one of the same model, device, engine version and memory settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchjobs.accounts.figures import AttemptFigures, RunFigures
from batchjobs.accounts.lengths import OutputLengths
from batchjobs.planning.plan import make_plan, read_dataset
from batchjobs.settings.capacity import NOTHING
from batchjobs.settings.measured import Measured, read_learnt, read_measured, remember_measured
from batchjobs.settings.sizing import decide
from batchjobs.settings.speed import speed_of
from batchjobs.settings.survey import survey
from batchjobs.settings.weights import Weights
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.summary import Decision
from tests.conftest import MakeJob, text_table
from tests.models import word_model


@pytest.fixture(autouse=True)
def _cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)


@pytest.fixture
def job(make_job: MakeJob, tmp_path: Path) -> JobSpec:
    model = {"name": str(word_model(tmp_path / "model"))}
    return make_job(text_table(40), model=model, engine={"kind": "vllm", "max_num_seqs": "auto"})


def plan_of(job: JobSpec) -> Plan:
    return make_plan(job, job, read_dataset(job))


def figures(tokens: int = 1_000, seconds: float = 10.0, rows: int = 50, kv_cache_tokens: int = 1_280) -> RunFigures:
    last = {
        "rows": {"ok": rows, "error": 0, "rejected": 0}, "tokens": {"prompt": tokens, "output": 0},
    }  # fmt: skip
    engine = {"kv_cache_tokens": kv_cache_tokens}
    return RunFigures(attempts=[AttemptFigures(1, engine=engine, last=last, first_fed=1.0, last_ended=1.0 + seconds)])


def with_engine(job: JobSpec, **engine: Any) -> JobSpec:
    return job.model_copy(update={"engine": job.engine.model_copy(update=engine)})


def read(job: JobSpec) -> Measured | None:
    return read_measured(job, plan_of(job))


def test_cache_and_speed_are_remembered_for_the_same_memory_settings_only(job: JobSpec) -> None:
    remember_measured(job, plan_of(job), figures(), {"enforce_eager": True})
    found = read(job)
    assert found is not None
    assert (found.kv_cache_tokens, found.total_tokens_per_s, found.enforce_eager) == (1_280, 100.0, True)
    assert read(with_engine(job, max_num_seqs=5)) == found
    for other in ({"kv_cache_memory_bytes": 2**28}, {"gpu_memory_utilization": 0.5}, {"tensor_parallel_size": 2},
                  {"extra": {"block_size": 64}}, {"env": {"VLLM_CPU_KVCACHE_SPACE": "3"}}):  # fmt: skip
        assert read(with_engine(job, **other)) is None


def test_it_is_remembered_for_the_settings_that_were_in_force(job: JobSpec) -> None:
    remember_measured(job, plan_of(job), figures(), {"kv_cache_memory_bytes": 2**28})
    assert read(job) is None
    assert read(with_engine(job, kv_cache_memory_bytes=2**28)) is not None


def test_a_run_too_short_to_tell_leaves_the_speed_as_it_was(job: JobSpec) -> None:
    remember_measured(job, plan_of(job), figures(), {})
    remember_measured(job, plan_of(job), figures(seconds=0.5, kv_cache_tokens=2_560), {"enforce_eager": True})
    found = read(job)
    assert found is not None
    assert (found.kv_cache_tokens, found.total_tokens_per_s, found.enforce_eager) == (2_560, 100.0, False)


def test_an_engine_that_never_started_and_an_echo_teach_nothing(job: JobSpec, tmp_path: Path) -> None:
    remember_measured(job, plan_of(job), RunFigures(attempts=[AttemptFigures(1)]), {})
    echo = with_engine(job, kind="echo")
    remember_measured(echo, plan_of(echo), figures(), {})
    assert not (tmp_path / "state" / "batchjobs" / "rates").exists()


def test_a_record_that_cannot_be_read_is_left_aside(job: JobSpec, tmp_path: Path) -> None:
    remember_measured(job, plan_of(job), figures(), {})
    for record in (tmp_path / "state" / "batchjobs" / "rates").iterdir():
        record.write_text("{torn")
    assert read(job) is None


def decided(job: JobSpec) -> dict[str, Decision]:
    dataset, plan = read_dataset(job), plan_of(job)
    paths, shards = [file.path for file in plan.files], range(len(plan.shards))
    return decide(survey(job, plan, dataset.fs, paths, shards, plan.rows, OutputLengths()))


def test_the_next_plan_decides_by_it(job: JobSpec) -> None:
    remember_measured(job, plan_of(job), figures(kv_cache_tokens=1_280), {})
    found = decided(job)
    assert found["max_num_seqs"].value == 10  # a row of some 100 tokens is a block of 128
    assert "1,280 tokens of KV cache, as an earlier run's engine reported" in found["max_num_seqs"].reason
    assert "measured by an earlier run" in found["enforce_eager"].reason


def test_without_it_the_plan_says_what_it_goes_by(job: JobSpec) -> None:
    sized = with_engine(job, kv_cache_memory_bytes=2**20)
    found = decided(sized)
    assert "in 0.000977 GiB (kv_cache_memory_bytes) at 512 bytes each" in found["max_num_seqs"].reason
    assert "a rough guess" in found["enforce_eager"].reason


def test_the_rough_guess_goes_by_weights_and_cores(job: JobSpec) -> None:
    from batchjobs.settings.device import Device

    two_cores, sizes = Device("cpu", cores=2), (269_000_000, 16 * 10**9)
    small, large = (speed_of(job, two_cores, Weights(linear=size), None).tokens_per_s for size in sizes)
    assert small == pytest.approx(2_379, rel=0.01)
    assert large == pytest.approx(40)
    gpu = Device("gpu", "a GPU")
    assert speed_of(job, gpu, Weights(linear=269_000_000), None).tokens_per_s == 50_000
    assert speed_of(job, gpu, None, None).tokens_per_s == 12_500


def test_what_was_foreseen_is_kept_beside_what_the_engine_reported(job: JobSpec) -> None:
    sized = with_engine(job, kv_cache_memory_bytes=2**20)  # 2,048 tokens of 512 bytes
    remember_measured(sized, plan_of(sized), figures(kv_cache_tokens=2_048), {})
    found = read(sized)
    assert found is not None
    assert (found.kv_cache_tokens_foreseen, found.kv_cache_tokens) == (2_048, 2_048)
    assert read_learnt(sized, plan_of(sized)) == NOTHING


def test_a_report_that_was_not_foreseen_corrects_the_next_estimate_of_another_size(job: JobSpec) -> None:
    sized, twice = (with_engine(job, kv_cache_memory_bytes=size) for size in (2**20, 2**21))
    remember_measured(sized, plan_of(sized), figures(kv_cache_tokens=1_024), {})
    found = read(sized)
    assert found is not None
    assert (found.kv_cache_tokens_foreseen, found.kv_cache_tokens) == (2_048, 1_024)
    assert "in 0.00195 GiB (kv_cache_memory_bytes) at 1,024 bytes each" in decided(twice)["max_num_seqs"].reason


def test_the_last_runs_that_were_long_enough_are_kept(job: JobSpec) -> None:
    for tokens in range(1_000, 13_000, 1_000):
        remember_measured(job, plan_of(job), figures(tokens), {})
    remember_measured(job, plan_of(job), figures(seconds=0.5), {})
    found = read(job)
    assert found is not None
    assert [run.tokens_per_s for run in found.runs] == [100.0 * n for n in range(3, 13)]
    assert {run.job for run in found.runs} == {"test"}
