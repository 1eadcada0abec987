"""`run.deadline` and `run.max_cost_usd`: how they are written, what they mean, what is refused because of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchjobs.errors import Refused, SpecError
from batchjobs.spec import dump_job, load_job
from batchjobs.supervision.limits import Limits, limits_of, outlook, refuse_beyond
from schemas.figures import Estimate, Interval
from tests.conftest import MakeJob, run_here, write_spec

BEGAN = datetime.fromisoformat("2026-11-29T23:10:00+01:00")


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in Berlin, whatever time zones it knows."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("06:30", "2026-11-30T06:30+01:00"),
        ("6:30", "2026-11-30T06:30+01:00"),
        ("23:10", "2026-11-30T23:10+01:00"),  # now is not to come
        ("23:10:30", "2026-11-29T23:10:30+01:00"),
        ("7h30m", "2026-11-30T06:40+01:00"),
        ("7h 30m", "2026-11-30T06:40+01:00"),
        ("45m", "2026-11-29T23:55+01:00"),
        ("90s", "2026-11-29T23:11:30+01:00"),
        ("2h", "2026-11-30T01:10+01:00"),
        ("2026-12-01T06:30", "2026-12-01T06:30+01:00"),
        ("2026-12-01 06:30:00", "2026-12-01T06:30+01:00"),
        ("2026-12-01T06:30-05:00", "2026-12-01T12:30+01:00"),
        ("2026-12-01T06:30Z", "2026-12-01T07:30+01:00"),
    ],
)
def test_a_deadline_is_a_time_of_day_a_date_with_time_or_a_duration(
    make_job: MakeJob, written: str, moment: str
) -> None:
    job = make_job(run={"deadline": written})
    assert limits_of(job, BEGAN).deadline == datetime.fromisoformat(moment)


@pytest.mark.parametrize(
    ("began", "written", "moment"),
    [
        ("2026-03-28T23:00+01:00", "06:30", "2026-03-29T06:30+02:00"),  # clocks are set forward: a night of 6.5 hours
        ("2026-03-28T23:00+01:00", "2h30m", "2026-03-29T01:30+01:00"),
        ("2026-03-28T23:00+01:00", "4h", "2026-03-29T04:00+02:00"),  # a duration is a duration
        ("2026-03-29T01:00+01:00", "02:30", "2026-03-29T03:30+02:00"),  # there is no 02:30
        ("2026-10-25T01:00+02:00", "02:30", "2026-10-25T02:30+02:00"),  # there are two
        ("2026-10-25T02:40+02:00", "02:30", "2026-10-25T02:30+01:00"),
        ("2026-10-25T02:40+01:00", "02:30", "2026-10-26T02:30+01:00"),
    ],
)
def test_a_time_of_day_is_right_when_the_clocks_change(
    make_job: MakeJob, began: str, written: str, moment: str
) -> None:
    limits = limits_of(make_job(run={"deadline": written}), datetime.fromisoformat(began))
    assert limits.deadline == datetime.fromisoformat(moment)


@pytest.mark.parametrize("written", ["", "tomorrow", "25:00", "06:61", "0s", "h", "90", "1.5h", "2026-12-01", "-5m"])
def test_another_deadline_is_refused_with_what_is_allowed(make_job: MakeJob, written: str) -> None:
    with pytest.raises(SpecError, match=rf"run\.deadline: found '{written}'; allowed: a time of day \(06:30"):
        make_job(run={"deadline": written})


@pytest.mark.parametrize(
    ("line", "deadline"),
    [
        ("16:30", "16:30"),  # which YAML would otherwise take for the number 990
        ("06:30", "06:30"),
        ("2026-12-01T06:30:00", "2026-12-01T06:30:00"),
        ("2026-12-01T06:30:00+01:00", "2026-12-01T06:30:00+01:00"),
        ("45m", "45m"),
    ],
)
def test_a_job_file_needs_no_quotes(make_job: MakeJob, tmp_path: Path, line: str, deadline: str) -> None:
    file = write_spec(make_job(run={"deadline": "1h"}), tmp_path / "job.yaml")
    file.write_text(file.read_text().replace("deadline: 1h", f"deadline: {line}"))
    job = load_job(file)
    assert job.run.deadline == deadline
    assert yaml.safe_load(dump_job(job))["run"]["deadline"] == deadline


def test_a_budget_without_a_price_is_refused(make_job: MakeJob) -> None:
    with pytest.raises(SpecError, match=r"run\.max_cost_usd: found 5 without a price; .*cost\.usd_per_hour"):
        make_job(run={"max_cost_usd": 5})


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"run": {"deadline": "2026-01-01T06:30"}}, r"2026-01-01T06:30\+01:00, which has passed; allowed: a later one"),
        ({"run": {"deadline": "20s"}}, r"leaves 20\.0 s, of which the last 25\.0 s .*run\.drain_seconds is 20"),
        (
            {"run": {"max_cost_usd": 0.01}, "cost": {"usd_per_hour": 3.6}},
            r"run\.max_cost_usd: \$0\.0100 buys 10\.0 s of each replica",
        ),
    ],
)
def test_a_limit_that_leaves_no_time_to_work_is_refused_even_with_force(
    make_job: MakeJob, sections: dict[str, Any], words: str
) -> None:
    job = make_job(**sections)
    with pytest.raises(SpecError, match=rf"{words}.*Nothing was changed"):
        run_here(job, force=True)
    assert not Path(job.output.path).exists()


def estimate(low: float, is_bound: bool = False) -> Estimate:
    """That long in minutes and, at 60 dollars an hour, as many dollars."""
    return Estimate(
        seconds=Interval(low=60 * low, expected=72 * low, high=90 * low),
        usd=Interval(low=low, expected=1.2 * low, high=1.5 * low),
        is_bound=is_bound,
        basis="Measured yesterday.",
    )


def limits(make_job: MakeJob) -> Limits:
    job = make_job(run={"deadline": "00:00", "max_cost_usd": 80}, cost={"usd_per_hour": 60})
    return limits_of(job, BEGAN)


def test_a_job_is_refused_only_if_even_the_low_end_of_its_estimate_does_not_fit(make_job: MakeJob) -> None:
    refuse_beyond(limits(make_job), estimate(49), force=False)
    with pytest.raises(
        Refused,
        match=r"The job needs 1 h 01 min \(51 min 00 s to 1 h 16 min\), but run\.deadline \(00:00\) leaves "
        r"50 min 00 s\. \(Measured yesterday\.\) Nothing was changed\. Raise the limit, or go anyway with --force",
    ):
        refuse_beyond(limits(make_job), estimate(51), force=False)
    with pytest.raises(Refused, match=r"The job costs \$97\.20 .*, more than run\.max_cost_usd \(\$80\.00\)"):
        refuse_beyond(limits(make_job), estimate(81), force=False)
    refuse_beyond(limits(make_job), estimate(81), force=True)


def test_a_bound_refuses_too_and_is_called_at_least(make_job: MakeJob) -> None:
    with pytest.raises(Refused, match="The job needs at least 51 min 00 s, but"):
        refuse_beyond(limits(make_job), estimate(51, is_bound=True), force=False)


def test_what_is_not_known_refuses_nothing_and_is_said(make_job: MakeJob) -> None:
    for unknown in (None, Estimate(basis="No earlier run.")):
        refuse_beyond(limits(make_job), unknown, force=False)
        assert outlook(limits(make_job), unknown) == [
            "run.deadline (00:00): 50 min 00 s are left; how long the job takes is not known.",
            "run.max_cost_usd ($80.00): what the job costs is not known.",
        ]
    assert outlook(Limits(), None) == []
