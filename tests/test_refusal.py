"""What a job refuses before it changes anything, and in which words."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.errors import InputError, OutputError, SpecError
from tests.conftest import MakeJob, read_output, run_here, snapshot, text_table
from tests.models import word_model


def test_a_changed_setting_is_refused_with_the_difference(make_job: MakeJob) -> None:
    run_here(make_job())
    before = snapshot(make_job().output.path)
    with pytest.raises(OutputError, match=r"sampling\.max_tokens: was 100, now 5"):
        run_here(make_job(sampling={"max_tokens": 5}))
    assert snapshot(make_job().output.path) == before


def test_a_changed_input_file_is_refused(make_job: MakeJob) -> None:
    run_here(make_job(text_table(10)))
    with pytest.raises(OutputError, match="input: 00.parquet has changed"):
        run_here(make_job(text_table(11)))


def test_a_file_that_arrived_later_is_refused_and_frozen_input_finishes_what_was_planned(make_job: MakeJob) -> None:
    job = make_job(text_table(10), engine={"echo": {"raise_rows": [5]}}, run={"max_restarts": 0})
    run_here(job)
    job = make_job(text_table(10), text_table(5, first=10))
    with pytest.raises(OutputError, match=r"01\.parquet is new[\s\S]*--frozen-input"):
        run_here(job)
    assert run_here(job, frozen_input=True).rows.total == 10


def test_an_output_folder_that_is_not_ours_is_refused_and_left_alone(make_job: MakeJob) -> None:
    job = make_job()
    folder = Path(job.output.path)
    folder.mkdir()
    (folder / "precious.txt").write_text("x")
    with pytest.raises(OutputError, match=r"not empty.*precious\.txt"):
        run_here(job)
    assert [f.name for f in folder.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("where", ["data", "data/out", "."])
def test_an_output_that_is_or_contains_or_lies_inside_the_input_is_refused(
    make_job: MakeJob, tmp_path: Path, where: str
) -> None:
    with pytest.raises(OutputError, match=r"output\.path"):
        run_here(make_job(output={"path": str(tmp_path / where)}))


def test_missing_input_is_refused_before_anything_is_written(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(input={"path": str(tmp_path / "nowhere")})
    with pytest.raises(InputError, match="nowhere"):
        run_here(job)
    assert not Path(job.output.path).exists()


def test_a_tokenizer_that_cannot_be_loaded_is_refused_before_anything_is_written(
    make_job: MakeJob, tmp_path: Path
) -> None:
    model = word_model(tmp_path / "model")
    (model / "tokenizer.json").write_text("half of a fi")
    job = make_job(model={"name": str(model)})
    with pytest.raises(SpecError, match=r"model\.name: the tokenizer of .* cannot be loaded"):
        run_here(job)
    assert not Path(job.output.path).exists()


def test_a_chat_for_a_model_without_a_chat_template_is_refused_before_anything_is_written(
    make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(model={"name": str(word_model(tmp_path / "model"))}, prompt={"column": None, "user": "{{ text }}"})
    with pytest.raises(SpecError, match=r"has no chat template; give prompt\.chat_template"):
        run_here(job)
    assert not Path(job.output.path).exists()


def test_a_clash_with_a_result_column_names_the_prefix(make_job: MakeJob) -> None:
    table = pa.table({"text": ["a"], "status": ["mine"]})
    with pytest.raises(SpecError, match=r"output\.prefix"):
        run_here(make_job(table))
    job = make_job(table, output={"prefix": "llm_"})
    run_here(job)
    assert read_output(job).select(["status", "llm_status", "llm_output"]).to_pylist() == [
        {"status": "mine", "llm_status": "ok", "llm_output": "a"}
    ]


def test_another_hive_value_is_another_input(make_job: MakeJob, tmp_path: Path) -> None:
    make_job()
    for day in ("1", "2"):
        (tmp_path / f"hive/dt={day}").mkdir(parents=True)
        pq.write_table(text_table(2), tmp_path / f"hive/dt={day}/a.parquet")
    run_here(make_job(input={"path": str(tmp_path / "hive/dt=1")}))
    with pytest.raises(OutputError, match=r"a\.parquet has changed"):
        run_here(make_job(input={"path": str(tmp_path / "hive/dt=2")}))


def test_a_link_does_not_hide_that_the_output_lies_inside_the_input(make_job: MakeJob, tmp_path: Path) -> None:
    make_job()
    (tmp_path / "data/inside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data/inside")
    for path in (str(tmp_path / "link"), f"file://{tmp_path}/data/inside"):
        with pytest.raises(OutputError, match="lies inside the input"):
            run_here(make_job(output={"path": path}))
    with pytest.raises(OutputError, match="lies inside the input"):
        run_here(make_job(input={"path": f"{tmp_path}/data/**/*.parquet"}, output={"path": f"{tmp_path}/data/inside"}))


@pytest.mark.parametrize("path", ["zzz://x", "memory://x"])
def test_an_output_that_cannot_last_is_refused(make_job: MakeJob, path: str) -> None:
    with pytest.raises(OutputError, match=path.split(":")[0]):
        run_here(make_job(output={"path": path}))


def test_an_interpreter_that_is_not_there_is_refused_before_anything_is_written(make_job: MakeJob) -> None:
    job = make_job(engine={"python": "/nonexistent/python"})
    with pytest.raises(SpecError, match=r"engine\.python: found /nonexistent/python"):
        run_here(job)
    assert not Path(job.output.path).exists()
