"""What a person sees of a running job, in the terminal and with `status`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from batchjobs.status import describe
from batchjobs.supervision.progress import Progress
from batchjobs.terminal import Lines, Terminal


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def moment() -> Progress:
    """Half of a job whose rest takes an hour and 50 cents; it has two hours and a dollar."""
    now = datetime.now(UTC)
    return Progress(
        phase="generating", rows_total=10, rows_done=5, rows_reused=0, errors=0, output_tokens=1, shards_total=2,
        shards_committed=1, attempt=1, elapsed_s=1, seconds_left=3600, ends_at=now + timedelta(hours=1),
        deadline=now + timedelta(hours=2), usd_so_far=0.4, usd_forecast=0.9, max_cost_usd=1,
    )  # fmt: skip


def test_the_bar_shows_the_forecast_beside_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    now = moment()
    assert now.ends_at
    assert now.deadline
    with Terminal() as terminal:
        terminal.progress(now)
    shown = capsys.readouterr().err
    assert (
        f"$0.400 of $1.0000, all done at $0.9000, all done {now.ends_at:%H:%M}, deadline {now.deadline:%H:%M}" in shown
    )


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_status_shows_the_forecast_beside_the_limits_while_the_job_runs(state: str) -> None:
    now = moment()
    assert now.ends_at
    assert now.deadline
    found = {
        "output": "out", "state": state, "shards": {"total": 2, "committed": 1}, "attempts": [], "quarantined": {},
        "progress": json.loads(now.model_dump_json()), "summary": None,
    }  # fmt: skip
    lines = describe(found).splitlines()
    ahead = [
        f"left    about 1 h 00 min, until {now.ends_at:%H:%M}",
        f"limit   run.deadline {now.deadline:%H:%M}",
        "limit   run.max_cost_usd $1.0000: $0.4000 so far, about $0.9000 when all is done",
    ]
    assert [line in lines for line in ahead] == [state == "running"] * 3


def test_lines_stay_above_the_one_that_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    lines = Lines()
    lines.moving("1 of 2 rows")
    lines.line("a warning")
    lines.moving("2 of 2 rows")
    lines.end()
    shown = capsys.readouterr().err.split("\r\x1b[K")
    assert shown == ["", "1 of 2 rows", "a warning\n1 of 2 rows", "2 of 2 rows\n"]


def test_without_a_terminal_the_moving_line_is_printed_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for text in ("1 of 3 rows", "2 of 3 rows"):
        lines.moving(text)
    lines.line("a warning")
    assert capsys.readouterr().err == "1 of 3 rows\na warning\n"
