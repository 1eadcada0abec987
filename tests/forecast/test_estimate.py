"""Time and money: from what was measured, else a bound that says so, else nothing with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.forecast.estimate import foresee
from batchjobs.settings.device import Device
from batchjobs.settings.measured import Measured, MeasuredRun
from batchjobs.settings.sample import Sample
from schemas.figures import Estimate
from tests.forecast.facts import facts, job

NOW = datetime(2026, 11, 29, 3, 0, tzinfo=UTC)
FORTY = OutputLengths({"128": [100, 4_000]})  # answers of 40 tokens to prompts of 128 to 255


def runs(*speeds: float, name: str = "nightly", ready_s: float = 60.0, eager: bool = False) -> Measured:
    found = [
        MeasuredRun(job=name, ended=NOW + timedelta(days=day), prompt_tokens=int(900 * speed),
                    output_tokens=int(100 * speed), engine_seconds=1_000, ready_s=ready_s, enforce_eager=eager)
        for day, speed in enumerate(speeds)
    ]  # fmt: skip
    return Measured(runs=found, updated=NOW)


def foreseen(lengths: OutputLengths = FORTY, replicas: int = 1, **known: Any) -> Estimate:
    return foresee(facts(**known), lengths, None, {}, replicas)


def test_it_is_tokens_by_measured_speed_and_the_start_of_an_engine() -> None:
    found = foreseen(measured=runs(8_000, 8_000, 8_000))
    assert found.seconds is not None
    assert not found.is_bound
    assert found.seconds.expected == pytest.approx(10_000 * 240 / 8_000 + 60)
    assert "2,400,000 tokens at 8,000 per second and engine, the mean of the latest 3 runs of this job" in found.basis
    assert "2026-12-01 03:00 UTC" in found.basis


def test_runs_that_differ_make_the_interval_wide() -> None:
    alike, different = foreseen(measured=runs(8_000, 8_100, 7_900)), foreseen(measured=runs(8_000, 12_000, 4_000))
    for found in (alike, different):
        assert found.seconds is not None
        assert found.seconds.low < found.seconds.expected < found.seconds.high
    widths = [found.seconds.high - found.seconds.low for found in (alike, different) if found.seconds is not None]
    assert widths[1] > 5 * widths[0]


def test_one_run_presumes_a_spread_and_says_so() -> None:
    found = foreseen(measured=runs(8_000))
    assert found.seconds is not None
    assert found.seconds.high == pytest.approx(360 + 0.25 * (300**2 + 60**2) ** 0.5, rel=0.001)
    assert "a spread of 25% is presumed" in found.basis


def test_runs_of_this_job_count_before_those_of_others() -> None:
    both = Measured(runs=[*runs(1_000, name="other").runs, *runs(8_000).runs], updated=NOW)
    assert "at 8,000 per second" in foreseen(measured=both).basis
    assert "of other jobs with this model" in foreseen(measured=runs(1_000, name="other")).basis


def test_more_engines_generate_in_less_time_for_the_same_money() -> None:
    priced = job(cost={"usd_per_hour": 3.6})
    one, two = (foreseen(spec=priced, measured=runs(8_000, ready_s=0.0), replicas=n) for n in (1, 2))
    assert one.seconds is not None
    assert two.seconds is not None
    assert two.seconds.expected == pytest.approx(one.seconds.expected / 2)
    assert one.usd is not None
    assert two.usd is not None
    assert one.usd.expected == pytest.approx(300 * 3.6 / 3600)
    assert two.usd.expected == pytest.approx(one.usd.expected)


def test_answers_of_unknown_length_count_with_all_of_their_max_tokens() -> None:
    found = foreseen(OutputLengths(), measured=runs(8_000))
    assert found.seconds is not None
    assert found.seconds.expected == pytest.approx(10_000 * 300 / 8_000 + 60)
    assert found.seconds.low < 10_000 * 200 / 8_000 + 60
    assert "each counts with all of its max_tokens" in found.basis


def test_without_a_measurement_it_is_a_bound_and_called_one() -> None:
    found = foreseen()
    assert found.is_bound
    assert found.seconds is not None
    assert found.basis.startswith("A bound, nothing measured: computing on 1 x H100")
    # Two operations per value of the linear layers and token at 989 TFLOP/s.
    assert found.seconds.low == pytest.approx(2 * 6.98e9 * 2_400_000 / 989e12, rel=0.01)
    assert found.seconds.low < found.seconds.expected < found.seconds.high


def test_few_requests_at_a_time_are_bound_by_reading_the_weights() -> None:
    found = foreseen(spec=job(engine={"max_num_seqs": 1}))
    assert found.seconds is not None
    assert "reading on 1 x H100" in found.basis
    assert found.seconds.low > 10_000 * 40 * 13.96e9 / 3.35e12


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"device": Device("cpu", "cpu", 24 * 2**30, 2)}, "the speed of the device (cpu) is not in the table of GPUs"),
        ({"weights": None}, "the model's weights are not on this machine"),
        ({"sample": Sample()}, "None of the rows that were looked at can be generated"),
    ],
)
def test_what_nobody_knows_is_null_with_the_reason(known: dict[str, Any], why: str) -> None:
    found = foreseen(**known)
    assert (found.seconds, found.usd) == (None, None)
    assert why in found.basis
