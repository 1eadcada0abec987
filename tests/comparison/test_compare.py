"""Two outputs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.comparison.compare import compare
from batchjobs.comparison.text import text
from batchjobs.errors import OutputError
from schemas.comparison import Comparison
from schemas.job import JobSpec
from tests.conftest import MakeJob, batchjobs, run_here, snapshot, text_table
from tests.one_process import in_one_process

ALL = 1000  # rows to look at


@pytest.fixture
def outcome(make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a job into a folder of its own and returns the folder."""
    in_one_process(monkeypatch, tmp_path / "state")

    def run(name: str, *tables: pa.Table, answer: str = "{prompt}", **sections: Any) -> str:
        output = {"path": str(tmp_path / name), **sections.pop("output", {})}
        engine = {"echo": {"answer": answer, **sections.pop("echo", {})}, **sections.pop("engine", {})}
        job: JobSpec = make_job(*tables, output=output, engine=engine, **sections)
        run_here(job)
        return job.output.path

    return run


def shares(found: Comparison) -> dict[str, tuple[float, float]]:
    return {change.figure: (change.before, change.now) for change in found.health}


def test_runs_with_the_same_answers_agree_though_they_are_cut_and_named_otherwise(outcome: Any) -> None:
    a = outcome("a", text_table(10), run={"shard_rows": 4})
    b = outcome("b", text_table(10), run={"shard_rows": 3}, output={"prefix": "llm_", "keep_columns": ["id"]})
    found = compare(a, b, ALL)
    assert (found.matched.by, found.matched.rows, found.matched.looked_at) == ("row", 10, 10)
    assert found.agreement is not None
    assert (found.agreement.exact.expected, found.agreement.token_f1.expected) == (1, 1)
    assert (found.agreement.differing, found.examples) == (0, [])
    assert found.lengths.ks_distance == 0
    assert {change.key for change in found.settings} == {"run.shard_rows"}


def test_what_differs_is_measured_and_shown(outcome: Any) -> None:
    """Odd rows differ in case only, row 9 altogether."""
    table = text_table(10)
    other = [f"TEXT {n}." if n % 2 else f"text {n}" for n in range(9)] + ["quite another answer"]
    second = pa.table({"id": table["id"], "text": table["text"], "answer": other})
    a = outcome("a", table, input={"id_column": "id"})
    b = outcome("b", second, input={"id_column": "id"}, prompt={"column": "answer"})
    found = compare(a, b, ALL)
    assert found.matched.by == "id"
    assert found.agreement is not None
    assert found.agreement.exact.expected == pytest.approx(0.5)
    assert found.agreement.exact.low < 0.5 < found.agreement.exact.high
    assert found.agreement.normalised.expected == pytest.approx(0.9)
    assert found.agreement.token_f1.expected == pytest.approx(0.9)
    assert (found.agreement.differing, found.agreement.common_words) == (5, 0)
    assert (found.examples[0].key, found.examples[0].before, found.examples[0].now) == (
        "id-9", "text 9", "quite another answer",
    )  # fmt: skip
    assert {"prompt.column", "input"} <= {change.key for change in found.settings}
    assert "id-9 (row 9)" in text(found)


def test_the_health_of_both_is_counted_over_the_same_rows(outcome: Any) -> None:
    table = text_table(20)
    a = outcome("a", table, run={"max_error_rate": 1})
    b = outcome(
        "b", table, answer="x" * 500, echo={"error_rows": [3, 4]}, sampling={"max_tokens": 400},
        run={"max_error_rate": 1},
    )  # fmt: skip
    found = compare(a, b, ALL)
    assert shares(found) == {
        "failed": (0, 0.1), "empty": (0, 0), "truncated": (0, 0.9), "invalid JSON": (0, 0), "repetitive": (0, 0.9),
    }  # fmt: skip
    cut = found.health[2].difference
    assert cut.expected == pytest.approx(0.9)
    assert cut.low < cut.expected <= cut.high <= 1
    assert found.agreement is not None
    assert found.agreement.rows == 18
    assert (found.lengths.before.count, found.lengths.now.mean) == (18, 400)
    assert found.lengths.ks_distance == 1


def test_empty_and_invalid_answers_are_seen(outcome: Any) -> None:
    table = pa.table({"text": ['{"a": 1}', '{"b"', "  ", "[]"]})
    json_wanted = {"structured_outputs": {"json": {"type": "object"}}}
    a = outcome("a", table, prompt={"template": "p{{ text }}"}, answer="[1]", run={"max_error_rate": 1})
    b = outcome("b", table, prompt={"template": "{{ text }}{{ '' }}"}, sampling=json_wanted, run={"max_error_rate": 1})
    c = outcome("c", table, answer=" ", prompt={"template": "p{{ text }}"}, run={"max_error_rate": 1})
    assert shares(compare(a, b, ALL))["invalid JSON"] == (0, 0.25)
    assert shares(compare(a, b, ALL))["failed"] == (0, 0.5)  # the blank prompt too
    assert shares(compare(a, c, ALL))["empty"] == (0, 1)


def test_rows_are_matched_by_id_whatever_their_order_and_a_repeated_id_names_none(outcome: Any) -> None:
    table = text_table(8)
    shuffled = table.take([5, 2, 7, 0, 1, 3, 6, 4])
    twice = pa.concat_tables([shuffled, shuffled.slice(0, 1), text_table(2, first=50)])
    a = outcome("a", table, input={"id_column": "id"})
    b = outcome("b", twice, input={"id_column": "id"})
    found = compare(a, b, ALL)
    assert (found.matched.by, found.matched.rows) == ("id", 7)
    assert (found.matched.only_before, found.matched.only_now) == (1, 4)
    assert found.agreement is not None
    assert found.agreement.exact.expected == 1


def test_ids_of_other_integer_types_are_the_same_ids(outcome: Any) -> None:
    narrow = pa.table({"id": pa.array(range(5), pa.int32()), "text": [f"t{n}" for n in range(5)]})
    wide = narrow.cast(pa.schema([("id", pa.int64()), ("text", pa.string())]))
    a, b = (outcome(name, t, input={"id_column": "id"}) for name, t in (("a", narrow), ("b", wide)))
    assert compare(a, b, ALL).matched.rows == 5


def test_without_ids_rows_of_files_that_both_have_are_matched_by_number(outcome: Any, tmp_path: Path) -> None:
    a = outcome("a", text_table(6), text_table(5, first=6))
    b = outcome("b", text_table(6), text_table(5, first=6), text_table(4, first=50))
    found = compare(a, b, ALL)
    assert (found.matched.by, found.matched.rows, found.matched.only_now) == ("row", 11, 0)


def test_without_ids_and_files_identical_requests_are_matched(outcome: Any) -> None:
    a = outcome("a", text_table(6))
    b = outcome("b", text_table(6, first=3))
    found = compare(a, b, ALL)
    assert (found.matched.by, found.matched.rows) == ("request_hash", 3)


def test_a_sample_is_spread_over_all_pairs_and_the_reader_is_told(outcome: Any) -> None:
    """The second half differs: an even sample of ten sees half of that."""
    table = text_table(40)
    second = table.set_column(1, "text", [[f"text {n}" if n < 20 else "other" for n in range(40)]])
    a, b = (outcome(name, t, input={"id_column": "id"}) for name, t in (("a", table), ("b", second)))
    found = compare(a, b, 10)
    assert (found.matched.rows, found.matched.looked_at) == (40, 10)
    assert found.agreement is not None
    assert found.agreement.exact.expected == 0.5
    assert any("10 of 40 pairs" in note for note in found.notes)


def test_what_cannot_be_compared_is_refused_with_a_sentence(outcome: Any, tmp_path: Path) -> None:
    a = outcome("a", text_table(6), input={"id_column": "id"})
    b = outcome("b", text_table(6, first=50), input={"id_column": "id"})
    with pytest.raises(OutputError, match="no id of one"):
        compare(a, b, ALL)
    with pytest.raises(OutputError, match="is not an output of batchjobs"):
        compare(a, str(tmp_path / "data"), ALL)
    c = outcome("c", text_table(6, first=80), answer="x")
    with pytest.raises(OutputError, match="no request of one is a request of the other"):
        compare(a, c, ALL)
    part = Path(b) / "part-000000.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(OutputError, match="part-000000.parquet cannot be read"):
        compare(b, b, ALL)
    (Path(a) / "_batchjobs" / "summary.json").unlink()
    with pytest.raises(OutputError, match="has no summary"):
        compare(a, c, ALL)


def test_values_from_the_environment_are_not_shown(outcome: Any) -> None:
    a = outcome("a", engine={"env": {"TOKEN": "hush", "SAME": "x"}})
    b = outcome("b", engine={"env": {"TOKEN": "secret", "SAME": "x", "MORE": "hidden"}})
    found = compare(a, b, ALL)
    assert [(s.key, s.before, s.now) for s in found.settings] == [
        ("engine.env.TOKEN", "set", "set otherwise"), ("engine.env.MORE", None, "set"),
    ]  # fmt: skip


def test_an_incomplete_output_is_compared_as_far_as_it_is(outcome: Any) -> None:
    a, b = outcome("a", text_table(8)), outcome("b", text_table(8))
    (Path(b) / "part-000001.parquet").unlink()
    found = compare(a, b, ALL)
    assert (found.matched.rows, found.matched.only_before) == (4, 4)
    assert any("B is incomplete" in note for note in found.notes)


def test_the_command_prints_text_for_people_and_json_for_machines_and_changes_nothing(outcome: Any) -> None:
    a = outcome("a", text_table(10), cost={"usd_per_hour": 2.5})
    b = outcome("b", text_table(10), answer="no {prompt}", cost={"usd_per_hour": 5})
    before = snapshot(a) | snapshot(b)
    shown = batchjobs("compare", a, b)
    assert (shown.returncode, shown.stderr) == (0, "")
    for word in ("engine.echo.answer: {prompt} -> no {prompt}", "output tokens/s", "per 1,000 rows", "truncated",
                 "exactly the same", "Kolmogorov-Smirnov", "A: text", "B: no text", "95 % interval"):  # fmt: skip
        assert word in shown.stdout
    machine = json.loads(batchjobs("compare", a, b, "--json", "--sample", "4").stdout)
    assert Comparison.model_validate(machine).matched.looked_at == 4
    assert machine["cost"][0]["relative"] is not None
    assert snapshot(a) | snapshot(b) == before


def test_the_output_of_a_job_over_other_columns_is_still_readable(outcome: Any) -> None:
    """Kept columns may be called like result columns without prefix."""
    table = pa.table({"output": ["a", "b"], "row": [7, 8], "id": ["x", "y"]})
    prefixed = {"prefix": "llm_"}
    a = outcome("a", table, prompt={"column": "output"}, output=prefixed)
    b = outcome("b", table, prompt={"column": "output"}, output=prefixed, answer="{prompt}!")
    assert pq.read_table(a).column_names[0] == "output"
    found = compare(a, b, ALL)
    assert found.matched.by == "row"
    assert sorted((e.before, e.now) for e in found.examples) == [("a", "a!"), ("b", "b!")]
