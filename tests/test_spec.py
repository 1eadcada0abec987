"""Job files: what is refused and how, relative paths, references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from batchjobs.errors import SpecError
from batchjobs.spec import dump_job, limited, load_job, parse_job, resolve_references

SPEC: dict[str, Any] = {
    "name": "test",
    "input": {"path": "data"},
    "prompt": {"column": "text"},
    "sampling": {"max_tokens": 10},
    "engine": {"kind": "echo"},
    "output": {"path": "out"},
}


def with_(**sections: Any) -> dict[str, Any]:
    return {**SPEC, **sections}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"smapling": {}}, r"smapling: unknown key; did you mean sampling\? allowed: name, input"),
        ({"run": {"shardrows": 3}}, r"run\.shardrows: unknown key; did you mean shard_rows\?"),
        ({"run": {"shard_rows": 0}}, r"run\.shard_rows: found 0; allowed: input should be greater than or equal to 1"),
        ({"run": {"order": "random"}}, r"run\.order: found 'random'; allowed: .*longest_first"),
        ({"sampling": {}}, r"sampling\.max_tokens: missing"),
        ({"sampling": {"max_tokens": 1, "temperature": 3}}, r"sampling\.temperature: found 3"),
        ({"sampling": {"max_tokens": 1, "extra": {"n": 2}}}, r"extra\.n: found 2; not allowed: a row has one answer"),
        ({"sampling": {"max_tokens": 1, "extra": {"top_p": 1}}}, r"allowed: sampling\.top_p"),
        (
            {"sampling": {"max_tokens": 1, "structured_outputs": {}}},
            r"structured_outputs: found none; allowed: exactly one",
        ),
        ({"prompt": {}}, r"prompt: found none; allowed: exactly one of user"),
        ({"prompt": {"column": "a", "user": "b"}}, r"found user and column"),
        ({"prompt": {"column": "a", "system": "b"}}, r"only together with user"),
        ({"engine": {"kind": "vllm"}}, r"model: missing; required with engine\.kind vllm"),
        ({"engine": {"kind": "echo", "max_num_seqs": 0}}, r"max_num_seqs: found 0; allowed: 'auto'"),
        (
            {"engine": {"kind": "echo", "extra": {"max_model_len": 5}}},
            r"extra\.max_model_len: allowed: model\.max_model_len",
        ),
        ({"input": {}}, r"input\.path: missing"),
    ],
)
def test_a_bad_key_is_named_with_what_was_found_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_job(with_(**change))


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job(with_(smapling={}, run={"shard_rows": 0}))
    assert "smapling" in str(caught.value)
    assert "run.shard_rows" in str(caught.value)


@pytest.mark.parametrize("text", ["", "just text", "[1, 2]", "a: b: c", "name: a\nname: b\n"])
def test_a_file_that_is_no_job_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(SpecError, match=r"job\.yaml"):
        load_job(file)


def test_a_missing_job_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml cannot be read"):
        load_job(tmp_path / "nowhere.yaml")


def test_relative_paths_start_at_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    data = with_(model={"name": "model"}, input={"path": ["data", "s3://b/x", "/abs", "${LAKE}/y"]}, run={"state": "s"})
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(data))
    job = load_job(file)
    assert job.input.path == [f"{tmp_path}/data", "s3://b/x", "/abs", "${LAKE}/y"]
    assert (job.output.path, job.run.state) == (f"{tmp_path}/out", f"{tmp_path}/s")
    assert job.model is not None
    assert job.model.name == f"{tmp_path}/model"


def test_a_hub_name_is_no_path(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(with_(model={"name": "org/model"})))
    job = load_job(file)
    assert job.model is not None
    assert job.model.name == "org/model"


def test_references_are_resolved_for_use_and_kept_for_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "/lake")
    monkeypatch.setenv("KEY", "secret")
    job = parse_job(
        with_(input={"path": "${LAKE}/a", "storage_options": {"key": "${KEY}", "nested": {"k": ["${KEY}"]}}})
    )
    resolved = resolve_references(job)
    assert resolved.input.path == "/lake/a"
    assert resolved.input.storage_options == {"key": "secret", "nested": {"k": ["secret"]}}
    assert "secret" not in dump_job(job)
    assert "${KEY}" in dump_job(job)


def test_a_reference_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(SpecError, match=r"output\.path: found \$\{NOWHERE\}"):
        resolve_references(parse_job(with_(output={"path": "${NOWHERE}/x"})))


def test_prompts_keep_their_dollars() -> None:
    job = parse_job(with_(prompt={"template": "${HOME} {{ text }}"}))
    assert resolve_references(job).prompt.template == "${HOME} {{ text }}"


def test_a_dumped_job_is_the_same_job() -> None:
    job = parse_job(with_(sampling={"max_tokens": 1, "structured_outputs": {"json": {"type": "object"}}}))
    assert parse_job(yaml.safe_load(dump_job(job))) == job


def test_a_limited_job_has_an_output_of_its_own() -> None:
    job = limited(parse_job(with_(output={"path": "s3://b/out/"})), 10)
    assert (job.input.limit, job.output.path) == (10, "s3://b/out-limit-10")
