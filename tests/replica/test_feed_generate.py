"""`feed: generate`: one call per shard, and the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.engines.echo import EchoEngine
from batchjobs.replica import feed
from batchjobs.storage.checkpoint import committed_shards
from batchjobs.storage.store import open_store
from bench.wired import assignment_of, run_wired
from schemas.job import JobSpec
from scripts.build_model import build_model
from tests.conftest import MakeJob, batchjobs, read_output, run_here, summary_of, text_table, write_spec
from tests.processes import kill_all_of, start, wait_for_parts
from tests.test_real_engine import MODEL, bad_rows, real_job

UNEQUAL = ("queue_s", "ttft_s", "tpot_s", "cached_tokens")  # in any two runs
GENERATE = {"feed": "generate"}


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def parts_of(job: JobSpec) -> dict[str, list[dict[str, Any]]]:
    """Every part by name, as far as two runs must agree."""
    parts = sorted(Path(job.output.path).glob("part-*.parquet"))
    return {part.name: pq.read_table(part).drop_columns(list(UNEQUAL)).to_pylist() for part in parts}


def test_the_parts_are_those_of_continuous_feeding_whatever_the_rows(make_job: MakeJob, tmp_path: Path) -> None:
    table = pa.concat_tables([text_table(20), pa.table({"id": ["x", "y"], "text": ["", None]}), text_table(9, 20)])
    engine = {"max_num_seqs": 3, "echo": {"reject_rows": [1, 2, 25], "error_rows": [4], "abort_rows": [10]}}
    sections = {"engine": engine, "input": {"filter": "id != 'id-7'"}}
    continuous = make_job(table, **sections, run={"max_error_rate": 1})
    generate = make_job(
        table, **sections, run={"max_error_rate": 1, **GENERATE}, output={"path": str(tmp_path / "again")}
    )
    first, second = run_here(continuous), run_here(generate)
    assert second.state == "completed"
    assert first.errors == second.errors == {
        "engine_rejected": 3, "empty_prompt": 1, "engine_error": 1, "engine_abort": 1, "null_prompt": 1,
    }  # fmt: skip
    assert len(parts_of(generate)) == 8
    assert parts_of(generate) == parts_of(continuous)


def fed_and_ended(job: JobSpec) -> list[tuple[str, list[int]]]:
    """What the dispatcher would hear of rows, each message's rows sorted."""
    _, heard = run_wired(assignment_of(job), EchoEngine(job))
    return [(m["kind"], sorted(m["rows"])) for m in heard.messages if m["kind"] in ("fed", "ended")]


def test_a_call_is_one_shard(make_job: MakeJob) -> None:
    job = make_job(text_table(10), run=GENERATE)
    calls = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert fed_and_ended(job) == [message for rows in calls for message in (("fed", rows), ("ended", rows))]


def test_a_row_that_the_engine_aborts_is_called_once_more_before_the_next_shard(make_job: MakeJob) -> None:
    job = make_job(text_table(6), run=GENERATE, engine={"echo": {"abort_rows": [2]}})
    assert fed_and_ended(job) == [
        ("fed", [0, 1, 2, 3]),
        ("ended", [0, 1, 3]),
        ("fed", [2]),
        ("ended", [2]),
        ("fed", [4, 5]),
        ("ended", [4, 5]),
    ]


def test_a_call_gives_signs_of_life_while_it_lasts(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_PROGRESS_S", 0.0)
    job = make_job(text_table(8), run={**GENERATE, "shard_rows": 8}, engine={"echo": {"tokens_per_s": 1e6}})
    _, heard = run_wired(assignment_of(job), EchoEngine(job))
    kinds = [message["kind"] for message in heard.messages]
    assert kinds[kinds.index("fed") : kinds.index("ended")].count("progress") == 8


def test_the_end_of_every_call_but_the_last_is_starved_and_of_the_last_tail(make_job: MakeJob) -> None:
    engine = {"max_num_seqs": 4, "echo": {"tokens_per_s": 200}}  # 8 rows of 6 tokens: 0.24 s a call, half of it full
    job = make_job(text_table(16), run={**GENERATE, "shard_rows": 8}, engine=engine)
    feeder, _ = run_wired(assignment_of(job), EchoEngine(job))
    seconds = feeder.watch.seconds()
    assert seconds["starved"] > 0
    assert seconds["tail"] > 0
    assert seconds["productive"] > seconds["tail"]


def slow_job(make_job: MakeJob, **run: Any) -> JobSpec:
    """About 12 seconds of work: 60 rows of about 7 tokens at 35 tokens/s."""
    return make_job(text_table(60), engine={"echo": {"tokens_per_s": 35}}, run={**GENERATE, **run})


def test_a_kill_costs_the_open_shard_and_nothing_else(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    wait_for_parts(job, 2)
    kill_all_of(job, running)
    done = len(committed_shards(open_store(job.output.path)))
    fast = write_spec(make_job(text_table(60)), tmp_path / "job.yaml")  # another feed may finish it
    summary = summary_of(batchjobs("run", "--no-prefect", "--json", fast))
    assert summary["state"] == "completed"
    assert (summary["rows"]["reused"], summary["rows"]["generated"]) == (4 * done, 60 - 4 * done)
    assert read_output(job)["output"].to_pylist() == [f"text {n}" for n in range(60)]


def test_the_rows_on_which_the_engine_dies_are_found(make_job: MakeJob) -> None:
    job = make_job(
        text_table(60),
        engine={"echo": {"raise_rows": [7, 21]}},
        run={**GENERATE, "shard_rows": 20, "max_error_rate": 1},
    )
    summary = run_here(job)
    assert (summary.state, summary.rows.ok, summary.errors) == ("completed", 58, {"engine_crash": 2})
    assert [row for row, code in enumerate(read_output(job)["error_code"].to_pylist()) if code] == [7, 21]


def test_a_hang_within_a_call_is_noticed(make_job: MakeJob) -> None:
    job = make_job(
        text_table(6),
        engine={"echo": {"hang_rows": [3]}},
        run={**GENERATE, "stall_seconds": 0.2, "max_error_rate": 0.5},
    )
    summary = run_here(job)
    assert (summary.state, summary.errors) == ("completed", {"engine_crash": 1})
    assert {attempt.cause for attempt in summary.attempts} == {"hang", "done"}


def test_a_stop_lets_the_call_end_within_the_drain_time(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    wait_for_parts(job, 1)
    running.terminate()
    out, err = running.communicate(timeout=30)
    assert running.returncode == 3, err
    assert '"state": "partial"' in out
    told = [result for part in parts_of(job).values() for result in part]
    assert len(told) % 4 == 0
    assert list((tmp_path / "out/_batchjobs/journal").glob("*")) == []


def test_a_stop_gives_a_call_up_that_outlasts_the_drain_time(make_job: MakeJob, tmp_path: Path) -> None:
    job = slow_job(make_job, shard_rows=60, drain_seconds=0.2)
    running = start(write_spec(job, tmp_path / "job.yaml"))
    attempt = tmp_path / "out/_batchjobs/progress.json"
    while not attempt.exists() or '"generating"' not in attempt.read_text():
        assert running.poll() is None
    running.terminate()
    out, err = running.communicate(timeout=20)  # it leaves by itself: a replica that does not is killed after 30 s more
    assert running.returncode == 3, err
    assert '"total": 0' in out
    assert parts_of(job) == {}


@pytest.mark.engine
def test_the_real_engine_gives_the_same_rows_with_the_same_text(tmp_path: Path) -> None:
    from batchjobs.engines.vllm import VllmEngine

    build_model(MODEL)
    rows = [*bad_rows(), *({"ids": [504, 253, n], "params": None} for n in range(1000, 1020))]
    job = real_job(
        tmp_path,
        pa.Table.from_pylist(rows),
        prompt={"token_ids_column": "ids"},
        sampling={"temperature": 0, "max_tokens": 24, "per_row_column": "params"},
        model={"name": str(MODEL), "max_model_len": 512, "dtype": "float32"},  # else rounding depends on the batch
        run={"shard_rows": 8, **GENERATE},
    )
    again = job.model_copy(update={"output": job.output.model_copy(update={"path": str(tmp_path / "again")})})
    continuous = again.model_copy(update={"run": again.run.model_copy(update={"feed": "continuous"})})
    engine = VllmEngine(job)
    try:
        calls = calls_of(engine)
        run_wired(assignment_of(job), engine)
        engine.llm.reset_prefix_cache()
        run_wired(assignment_of(continuous), engine)
    finally:
        engine.close()
    runs = [row.get("expected") in (None, "invalid_output") for row in rows]
    assert calls == [sum(runs[i : i + 8]) for i in range(0, len(rows), 8)]
    generated, fed = read_output(job)["output"].to_pylist(), read_output(continuous)["output"].to_pylist()
    assert [(row, *both) for row, both in enumerate(zip(generated, fed, strict=True)) if both[0] != both[1]] == []
    assert parts_of(job) == parts_of(continuous)
    codes = [result["error_code"] for part in parts_of(job).values() for result in part]
    assert codes == [row.get("expected") for row in rows]


def calls_of(engine: Any) -> list[int]:
    """Notes how many requests each real `LLM.generate` gets."""
    calls: list[int] = []
    generate = engine.llm.generate

    def noted(prompts: list[Any], *arguments: Any, **options: Any) -> Any:
        calls.append(len(prompts))
        return generate(prompts, *arguments, **options)

    engine.llm.generate = noted
    return calls
