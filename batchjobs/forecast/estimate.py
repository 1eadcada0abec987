"""How long a job's rows will take, and what they will cost: from what earlier runs measured, else from a bound."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.accounts.units import duration
from batchjobs.forecast.roofline import least_seconds
from batchjobs.forecast.totals import student
from batchjobs.forecast.work import Work, work_of
from batchjobs.settings.gpus import find_gpu
from batchjobs.settings.measured import MeasuredRun
from batchjobs.settings.sizing import Decisions, Facts
from batchjobs.settings.speed import compile_seconds, converted
from schemas.figures import Estimate, Interval
from schemas.history import HistoryRecord
from schemas.job import JobSpec

_PRESUMED = 0.25  # spread of a speed that was measured once or twice
# Presumed, not measured: an engine may reach half of a bound, and hardly less than a tenth.
_OF_A_BOUND, _OF_A_BOUND_AT_WORST = 0.5, 0.1


def foresee(
    facts: Facts,
    lengths: OutputLengths,
    record: HistoryRecord | None,
    sizing: Decisions,
    replicas: int,
    prompt_bytes: float | None = None,
) -> Estimate:
    """The estimate for the rows that are left, of which `facts` has a sample.

    `lengths` and `record` are what earlier runs of the job left; `prompt_bytes` are of the prompt's columns in just
    these rows, as the footers count them.
    """
    work = work_of(facts.sample, lengths, facts.rows, prompt_bytes, record)
    return estimate(facts, work, sizing, replicas, record)


def estimate(
    facts: Facts, work: Work | None, sizing: Decisions, replicas: int, record: HistoryRecord | None
) -> Estimate:
    """Wall clock of a run that generates `work`, and its price; null, with the reason, if nothing is known.

    `record` is what the latest run of this job left.
    """
    job = facts.job
    if work is None:
        return Estimate(basis="None of the rows that were looked at can be generated.")
    eager = bool(sizing["enforce_eager"].value if "enforce_eager" in sizing else job.engine.enforce_eager)
    runs = _runs(job, facts, record)
    if runs:
        return _priced(job, replicas, _measured(facts, work, eager, replicas, runs, record))
    return _priced(job, replicas, _bound(facts, work, eager, sizing, replicas))


class _Seconds:
    """Seconds of a run by phase, and what they are based on."""

    def __init__(
        self, basis: str, whole: Interval | None = None, planning: float = 0.0, is_bound: bool = False
    ) -> None:
        self.basis, self.whole, self.planning, self.is_bound = basis, whole, planning, is_bound


def _priced(job: JobSpec, replicas: int, seconds: _Seconds) -> Estimate:
    usd = None
    if seconds.whole is not None and job.cost is not None:
        each_s = replicas * job.cost.usd_per_hour / 3600  # engines are held all the time but while the run is planned
        held = {name: max(0.0, value - seconds.planning) for name, value in seconds.whole.model_dump().items()}
        usd = Interval(**{name: value * each_s for name, value in held.items()})
    return Estimate(seconds=seconds.whole, usd=usd, is_bound=seconds.is_bound, basis=seconds.basis)


def _runs(job: JobSpec, facts: Facts, record: HistoryRecord | None) -> list[MeasuredRun]:
    """Those of this job, if there are any: another one has another mix of prompts and answers. The latest come last."""
    if job.engine.kind == "echo":
        return _of_record(record)
    known = facts.measured.runs if facts.measured is not None else []
    return [run for run in known if run.job == job.name] or known


def _of_record(record: HistoryRecord | None) -> list[MeasuredRun]:
    """The latest run of an echo job, whose speed is known nowhere else."""
    if record is None or record.summary.engine.kind != "echo":
        return []
    seconds, rate = record.summary.seconds, record.summary.rate.total_tokens_per_s
    engines = max(1, record.summary.engine.replicas)
    if not rate or not seconds.generating:
        return []
    tokens = round(rate * seconds.generating)
    run = MeasuredRun(
        job=record.job,
        ended=record.ended,
        prompt_tokens=tokens,
        output_tokens=0,
        engine_seconds=seconds.generating * engines,
        ready_s=seconds.engine_start,
    )
    return [run]


def _measured(
    facts: Facts, work: Work, eager: bool, replicas: int, runs: Sequence[MeasuredRun], record: HistoryRecord | None
) -> _Seconds:
    echo = facts.job.engine.kind == "echo"
    speeds = [run.tokens_per_s if echo else converted(run.tokens_per_s, facts.device, eager, run.enforce_eager)
              for run in runs]  # fmt: skip
    speed, spread = mean(speeds), _spread(speeds)
    low, expected, high = _tokens(work)
    generating = expected / (speed * replicas)
    start, start_spread = _start(facts, eager, runs)
    others = record.summary.seconds if record is not None else None
    planning, finishing = (others.plan, others.finish) if others is not None else (0.0, 0.0)
    fixed = planning + start + finishing
    shorter = sqrt((generating * spread) ** 2 + ((expected - low) / (speed * replicas)) ** 2 + start_spread**2)
    longer = sqrt((generating * spread) ** 2 + ((high - expected) / (speed * replicas)) ** 2 + start_spread**2)
    whole = fixed + generating
    basis = (
        f"{expected:,.0f} tokens at {speed:,.0f} per second and engine, {_whose(facts.job, runs)}; "
        f"{duration(start)} for the start of an engine and {duration(planning + finishing)} for planning and finishing."
    )
    if not work.knows_answers:
        basis += " Nothing is known of the answers' lengths, so each counts with all of its max_tokens."
    return _Seconds(basis, Interval(low=max(fixed, whole - shorter), expected=whole, high=whole + longer), planning)


def _whose(job: JobSpec, runs: Sequence[MeasuredRun]) -> str:
    kind = "of this job" if runs[0].job == job.name else "of other jobs with this model, device and engine version"
    count = "the latest run" if len(runs) == 1 else f"the mean of the latest {len(runs)} runs"
    spread = "" if len(runs) > 2 else f" (a spread of {_PRESUMED:.0%} is presumed)"
    return f"{count} {kind}, the last on {runs[-1].ended:%Y-%m-%d %H:%M} UTC{spread}"


def _spread(values: Sequence[float]) -> float:
    """Half of the 95 % interval for one more run, as a share of the mean."""
    if len(values) < 3:
        return _PRESUMED
    return student(len(values) - 1) * stdev(values) * sqrt(1 + 1 / len(values)) / mean(values)


def _tokens(work: Work) -> tuple[float, float, float]:
    """Prompt and output tokens that are generated: low, expected, high."""
    pairs = (
        (getattr(work.prompt_tokens, name), getattr(work.output_tokens, name)) for name in ("low", "expected", "high")
    )
    low, expected, high = ((prompt + output) * (1 - work.copies) for prompt, output in pairs)
    return low, expected, high


def _start(facts: Facts, eager: bool, runs: Sequence[MeasuredRun]) -> tuple[float, float]:
    """Seconds that an engine takes to start, and half of their interval."""
    known = [(run.ready_s, run.enforce_eager) for run in runs if run.ready_s is not None]
    if not known:
        return compile_seconds(facts.device), compile_seconds(facts.device)
    alike = [seconds for seconds, was_eager in known if was_eager == eager]
    if alike or facts.job.engine.kind == "echo":
        alike = alike or [seconds for seconds, _ in known]
        return mean(alike), mean(alike) * _spread(alike)
    extra = -compile_seconds(facts.device) if eager else compile_seconds(facts.device)
    start = max(0.0, mean(seconds for seconds, _ in known) + extra)
    return start, abs(extra)


def _bound(facts: Facts, work: Work, eager: bool, sizing: Decisions, replicas: int) -> _Seconds:
    """The roofline, clearly called a bound."""
    if facts.job.engine.kind == "echo":
        return _Seconds("No run of this job has been measured yet, and the echo engine has no bound.")
    nothing = "No run with this model, device, engine version and memory settings has been measured yet"
    gpu = find_gpu(facts.device.name) if facts.device.kind == "gpu" else None
    if gpu is None:
        return _Seconds(f"{nothing}, and the speed of the device ({facts.device.name}) is not in the table of GPUs.")
    decided = sizing["max_num_seqs"].value if "max_num_seqs" in sizing else facts.job.engine.max_num_seqs
    seqs = int(decided) if isinstance(decided, int) else facts.seqs_and_tokens()[0]
    found = least_seconds(facts, gpu, work, seqs)
    if found is None:
        return _Seconds(f"{nothing}, and the model's weights are not on this machine.")
    least, why = found[0] / replicas, found[1]
    start = 0.0 if eager else compile_seconds(facts.device)
    # Without a word on answers the bound has none of them, and the worst all of them.
    whole = Interval(low=least, expected=start + least / _OF_A_BOUND, high=start + least / _OF_A_BOUND_AT_WORST)
    basis = (
        f"A bound, nothing measured: {why} takes at least {duration(least)}. {nothing}. Expected and high presume that "
        f"an engine reaches {_OF_A_BOUND:.0%} and {_OF_A_BOUND_AT_WORST:.0%} of it, and starts in {duration(start)}."
    )
    return _Seconds(basis, whole, is_bound=True)
