"""The benchmarks' own promises: what the workloads are, how ratios are taken, and that tables come from the figures."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from batchjobs.spec import load_job
from bench import tables
from bench.__main__ import SECTIONS
from bench.peers.run_batch import rows_done
from bench.results import Results
from bench.running import CommandFailed, Running
from bench.statistics import paired, spread
from bench.workloads import SHARDS, WORKLOADS, bad_rows, duplicates, long_tail, prefixes, shared_tokens


def shards_of(table: pa.Table) -> list[list[Any]]:
    texts = table["text"].to_pylist()
    size = len(texts) // SHARDS
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def test_exactly_80_percent_of_the_duplicates_workload_are_distinct_in_every_shard() -> None:
    for rows in (40, 320):
        table = duplicates(rows)
        assert table.num_rows == rows
        assert len(set(table["text"].to_pylist())) == rows * 4 // 5
        assert [len(set(shard)) for shard in shards_of(table)] == [rows // SHARDS * 4 // 5] * SHARDS


def test_the_copies_of_a_duplicate_are_not_side_by_side_only() -> None:
    texts = duplicates(320)["text"].to_pylist()
    assert any(text in texts[:n] and texts[n - 1] != text for n, text in enumerate(texts))


def test_prefixes_asks_each_document_several_questions_in_random_order() -> None:
    rows = prefixes(180).to_pylist()
    documents = [row["document"] for row in rows]
    assert {documents.count(document) for document in documents} == {6}
    assert len({(row["document"], row["question"]) for row in rows}) == 180
    assert documents != sorted(documents, key=documents.index)
    assert len({document[:128] for document in documents}) == 30, "documents differ from the first block on"


def test_the_working_set_counts_each_shared_block_once() -> None:
    one, other = list(range(10)), list(range(100, 110))
    assert shared_tokens([one, [*one[:8], 77, 78], other], block=4) == 8
    assert shared_tokens([one, other], block=4) == 0


def test_one_bad_row_in_a_hundred_of_each_kind() -> None:
    texts = bad_rows(300)["text"].to_pylist()
    assert texts.count(None) == 1
    assert texts.count("") == 1
    assert sum(len(text or "") > 10_000 for text in texts) == 1


def test_one_answer_in_fifty_is_long() -> None:
    lengths = [row["max_tokens"] for row in long_tail(256)["sampling"].to_pylist()]
    assert lengths.count(200) == 5
    assert all(8 <= length <= 16 for length in lengths if length != 200)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_writes_a_job_of_eight_shards_or_more(name: str, tmp_path: Path) -> None:
    job = load_job(WORKLOADS[name].write(tmp_path, 80))
    rows = WORKLOADS[name].build(80).num_rows
    assert rows / job.run.shard_rows >= SHARDS


def test_ratios_are_taken_within_a_round_and_rounds_that_lack_one_side_are_left_out() -> None:
    records = [
        {"round": 0, "contender": "a", "x": 2.0},
        {"round": 0, "contender": "b", "x": 1.0},
        {"round": 1, "contender": "b", "x": 4.0},
        {"round": 1, "contender": "a", "x": 4.0},
        {"round": 2, "contender": "a", "x": 9.0},
    ]
    assert paired(records, "a", "b", lambda record: record["x"]) == [2.0, 1.0]


def test_a_spread_is_the_median_and_the_whole_range() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.text(1) == "2.0 (1.0 … 3.0)"
    with pytest.raises(ValueError, match="nothing was measured"):
        spread([])


def test_figures_are_in_the_file_after_every_record_and_other_sections_stay(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    Results(file).begin("kill").add({"contender": "ours"})
    section = Results(file).begin("demo")
    section.add({"rows": 1})
    kept = Results(file).sections
    assert kept["kill"]["records"] == [{"contender": "ours"}]
    assert kept["demo"]["records"] == [{"rows": 1}]


def test_the_page_has_a_place_for_every_table_and_a_command_that_exists() -> None:
    page = tables.filled(Path("docs/benchmarks.md").read_text(encoding="utf-8"), {})
    for name, (sections, _) in tables.TABLES.items():
        assert f"<!-- table: {name} -->" in page
        assert set(sections) <= SECTIONS.keys()
    shown = {section for sections, _ in tables.TABLES.values() for section in sections}
    assert shown == SECTIONS.keys(), "every section is in a table"


def test_a_table_shows_what_was_measured_and_what_could_not_be(tmp_path: Path) -> None:
    results = Results()
    section = results.begin("kill")
    section.add({"contender": "ours", "rows": 100, "answered": 52, "kept": 50})
    section.fail("run_batch: it broke\nmore")
    section.skip("ray: it is not here")
    section.skip("ray: it is not here")
    page = tables.filled("<!-- table: kill -->\nold\n<!-- end -->", results.sections)
    assert "| batchjobs | 100 | 52 | 50 | 2 |" in page
    assert "Could not be measured: run_batch: it broke\n" in page
    assert page.count("Left out: ray: it is not here") == 1
    assert "old" not in page
    assert page == tables.filled(page, results.sections), "filling it again changes nothing"


def test_a_command_that_fails_says_what_it_printed() -> None:
    with pytest.raises(CommandFailed, match="ended with 3:(.|\n)*so be it"):
        Running("bash", "-c", "echo so be it; exit 3").finish()


def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(CommandFailed, match="did not end within 0.2 seconds"):
        Running("sleep", "1000").finish(timeout=0.2)


def test_a_command_is_measured_with_its_children() -> None:
    child = f"{sys.executable} -c 'x = bytearray(2**27); import time; time.sleep(1.5)'"
    took = Running("bash", "-c", f"{child}; echo done").finish()
    assert took.stdout == "done\n"
    assert took.tree_bytes >= took.largest_bytes >= 2**27


def test_rows_done_are_read_from_run_batchs_progress_bar() -> None:
    bar = "Running batch:  50% Completed | {}/24 [00:05<00:05,  2.40req/s]\n"
    assert rows_done(bar.format(7) + bar.format(12)) == 12
    assert rows_done("nothing yet") == 0


def test_a_kill_reaches_the_children() -> None:
    running = Running("bash", "-c", "sleep 1000 & echo $!; wait")
    while not running.printed().strip():
        time.sleep(0.05)
    child = psutil.Process(int(running.printed()))
    running.kill()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
