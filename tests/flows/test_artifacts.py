"""What people read in the Prefect UI."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from batchjobs.storage.store import open_store
from batchjobs.supervision.progress import Progress
from flows.artifacts import artifact_key, describe, draw_report, level_of, share_of


def moment(**changes: object) -> Progress:
    known: dict[str, object] = {
        "phase": "generating", "rows_total": 4000, "rows_done": 1000, "rows_reused": 0, "errors": 7, "output_tokens": 9,
        "output_tokens_per_s": 1234.5, "seconds_left": 75.0, "shards_total": 4, "shards_committed": 1, "attempt": 2,
        "elapsed_s": 30.0, "usd_so_far": 0.5,
    }  # fmt: skip
    return Progress.model_validate({**known, **changes})


def test_a_glance_tells_rows_speed_time_left_cost_and_errors() -> None:
    glance, closer = describe(moment()).split("\n\n")
    assert glance == "**1,000 of 4,000 rows · 1,234 tokens/s · 75.0 s left · $0.5000 so far · 7 errors**"
    assert closer == "generating, 30.0 s · attempt 2 · 1 of 4 shards committed · 0 requests running, 0 waiting"


def test_what_is_not_known_yet_is_left_out() -> None:
    text = describe(moment(phase="starting", output_tokens_per_s=None, seconds_left=None, usd_so_far=None))
    assert text.startswith("**1,000 of 4,000 rows · 7 errors**")
    assert "starting the engine, 30.0 s" in text


@pytest.mark.parametrize(("done", "total", "share"), [(1, 4, 0.25), (4, 4, 1.0), (0, 0, 1.0)])
def test_progress_is_a_share_of_the_rows(done: int, total: int, share: float) -> None:
    assert share_of(moment(rows_done=done, rows_total=total)) == share


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO 11-29 KV cache size: 93,184 tokens", logging.INFO),
        ("(EngineCore pid=7) WARNING 11-29 slow", logging.WARNING),
        ("torch.OutOfMemoryError: CUDA out of memory.", logging.ERROR),
        ("Maximum concurrency for 4,096 tokens", logging.INFO),
    ],
)
def test_a_line_of_the_engines_log_keeps_its_level(line: str, level: int) -> None:
    assert level_of(line) == level


@pytest.mark.parametrize(
    ("name", "key"), [("Docs: all!", "docs-all-summary"), ("ünï_7", "n-7-summary"), ("...", "summary")]
)
def test_any_name_of_a_job_makes_a_key_that_prefect_takes(name: str, key: str) -> None:
    assert artifact_key(name, "summary") == key


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert draw_report(open_store(str(tmp_path))) is None
    assert f"`batchjobs report {tmp_path}` tries again" in caplog.text
