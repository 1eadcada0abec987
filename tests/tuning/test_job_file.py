"""The job file that is written: the user's own text with the settings to use."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.errors import SpecError
from batchjobs.spec import load_job
from batchjobs.tuning.job_file import free_name, write_tuned

HEAD = "# my job\nname: t\ninput: {path: data}\nprompt: {column: text}\nsampling: {max_tokens: 5}\nmodel: {name: m}\n"
TAIL = "output:\n  path: out   # results\n"
SETTINGS = {"max_num_seqs": 32, "max_num_batched_tokens": 2048}


def tuned(folder: Path, text: str, file: Path | None = None) -> str:
    job_file = folder / "job.yaml"
    job_file.write_text(text)
    file = file or free_name(job_file, None)
    write_tuned(job_file, SETTINGS, file)
    before, after = load_job(job_file), load_job(file)
    assert (after.engine.max_num_seqs, after.engine.max_num_batched_tokens) == (32, 2048)
    unset = {"max_num_seqs": "auto", "max_num_batched_tokens": "auto"}
    assert after.engine.model_copy(update=unset) == before.engine.model_copy(update=unset)
    assert after.model_copy(update={"engine": before.engine}) == before
    assert job_file.read_text() == text
    return file.read_text()


def test_values_change_in_place_and_comments_stay(tmp_path: Path) -> None:
    engine = "engine:   # vLLM\n  max_num_seqs: 64   # rows at a time\n  max_num_batched_tokens: auto\n"
    expected = "engine:   # vLLM\n  max_num_seqs: 32   # rows at a time\n  max_num_batched_tokens: 2048\n"
    assert tuned(tmp_path, HEAD + engine + TAIL) == HEAD + expected + TAIL


@pytest.mark.parametrize(
    "engine",
    [
        "engine:\n    kind: vllm   # real\n    extra: {block_size: 32}\n",
        "engine: {kind: vllm, enforce_eager: true}\n",
        "",
        "engine: {}\n",
        "engine: {extra: {max_num_seqs_of_mine: 1}}  # a name alike\n",
    ],
)
def test_keys_that_are_missing_are_added_however_the_section_is_written(tmp_path: Path, engine: str) -> None:
    found = tuned(tmp_path, HEAD + engine + TAIL)
    assert found.startswith("# From job.yaml" if engine == "engine: {}\n" else HEAD)


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_an_alias_or_another_folder_costs_the_comments_but_not_the_job(tmp_path: Path) -> None:
    anchored = HEAD + "engine: &e\n  max_num_seqs: &n 64\n  extra: {seed: *n}\n" + TAIL
    assert "tuned" in tuned(tmp_path, anchored).splitlines()[0]
    (tmp_path / "elsewhere").mkdir()
    moved = tuned(tmp_path, HEAD + TAIL, tmp_path / "elsewhere" / "new.yaml")
    assert str(tmp_path / "out") in moved


def test_no_file_is_ever_overwritten(tmp_path: Path) -> None:
    job_file = _written(tmp_path / "job.yaml", HEAD + TAIL)
    with pytest.raises(SpecError, match="exists already"):
        free_name(job_file, job_file)
    _written(tmp_path / "job.tuned.yaml", "")
    with pytest.raises(SpecError, match="exists already"):
        free_name(job_file, None)
