"""The summary in words."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from batchjobs.reports.text import markdown, text
from schemas.figures import Estimate, Interval
from schemas.summary import Change, Previous, Summary
from tests.conftest import MakeJob, run_here, text_table

API = {"usd_per_1m_input_tokens": 2.0, "usd_per_1m_output_tokens": 8.0}


def foreseen_and_previous(summary: Summary) -> Summary:
    estimate = Estimate(
        seconds=Interval(low=110, expected=120, high=140),
        usd=Interval(low=0.1, expected=0.12, high=0.14),
        basis="two earlier runs",
    )
    previous = Previous(
        ended=datetime(2026, 11, 28, 3, 4, tzinfo=UTC),
        same_settings=False,
        settings=["engine.max_num_seqs: 64 -> 128"],
        changes=[
            Change(figure="total tokens/s", unit="per s", before=1000, now=1100),
            Change(
                figure="empty answers",
                unit="share",
                before=0.01,
                now=0.05,
                breach="More than max_empty_increase allows.",
            ),
            Change(figure="preemptions", unit="count", before=None, now=3),
        ],
    )
    seconds = summary.seconds.model_copy(update={"wall": 131.0})
    return summary.model_copy(update={"foreseen": estimate, "previous": previous, "seconds": seconds})


def test_the_account_of_a_run_is_told_with_its_money_its_answers_and_what_was_foreseen(make_job: MakeJob) -> None:
    texts = pa.table({"text": ["same"] * 4 + [" . ", "yes, " * 40]})
    answer = {"echo": {"answer": "{prompt}"}}
    job = make_job(
        texts, engine=answer, sampling={"max_tokens": 150, "temperature": 0}, cost={"usd_per_hour": 3600, "api": API}
    )
    said = text(foreseen_and_previous(run_here(job)))
    for line in (
        "  truncated   1 of 6 (16.67%)",
        "  repetitive  1 of 6 (16.67%)",
        "  foreseen      1 min 50 s to 2 min 20 s, expected 2 min 00 s; took 2 min 11 s",
        "  identical rows  3 rows, 12 prompt tokens, 12 output tokens, about",
        "  prompt  mean 69.0, P50 4, P95 200, P99 200, longest 200",
        "same tokens from the API  $0.0",
        "foreseen                  $0.1000 to $0.1400, expected $0.1200",
        "  ended           2026-11-28 03:04 UTC; other settings, so the figures compare two things",
        "  setting         engine.max_num_seqs: 64 -> 128",
        "  empty answers   1.0% -> 5.0% (+400.0%). More than max_empty_increase allows.\n  total tokens/s",
        "  total tokens/s  1,000 -> 1,100 (+10.0%)",
        "  preemptions     – -> 3",
        " MiB, one replica",
    ):
        assert line in said
    startup = next(line for line in said.splitlines() if line.startswith("  startup "))
    assert "%), $" in startup


def test_nothing_is_said_of_what_is_not_known(make_job: MakeJob) -> None:
    summary = run_here(make_job(text_table(4)))
    said = text(summary)
    assert "of 4 answers" in said
    for word in ("$", "foreseen", "Against", "Saved", "GPU", "None", "API"):
        assert word not in said
    rejected = run_here(make_job(pa.table({"text": [None, ""]}), output={"path": f"{summary.output}-2"}))
    said = text(rejected)
    for word in ("Answers that", "Tokens per request", "None"):
        assert word not in said


def test_markdown_has_a_table_for_every_section(make_job: MakeJob) -> None:
    summary = foreseen_and_previous(run_here(make_job(cost={"usd_per_hour": 2.5})))
    said = markdown(summary)
    for title in ("Engine-seconds of this run", "Answers that may be wrong", "Against the run before", "Cost"):
        assert f"| {title} | |" in said


def test_a_setting_of_many_lines_has_one_line(make_job: MakeJob, tmp_path: Path) -> None:
    def night(number: int, template: str) -> Summary:
        output, state = {"path": str(tmp_path / f"night-{number}")}, {"state": str(tmp_path / "state")}
        return run_here(make_job(text_table(4, first=number), prompt={"template": template}, output=output, run=state))

    night(1, "Old.\n{{ text }}")
    second = night(2, "New.\n{{ text }}\n" + "rule " * 200)
    assert second.previous is not None
    assert "\n" in second.previous.settings[0]
    (shown,) = (line for line in text(second).splitlines() if "prompt.template" in line)
    assert "Old. {{ text }} -> New. {{ text }} rule" in shown
    assert len(shown) < 220
