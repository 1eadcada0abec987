"""`batchjobs tune`: try settings on a sample of the job's own rows, one axis after the other, and find the knee.

`max_num_seqs` first, because most depends on it; then `max_num_batched_tokens` at the knee of the first. Not the whole
grid: every setting is a start of the engine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batchjobs.errors import DeviceBusy
from batchjobs.settings.device import find_device
from batchjobs.settings.profiles import engine_version
from batchjobs.tuning.axes import Axis, Room, known_to_fail, seqs_axis, tokens_axis, variants
from batchjobs.tuning.knee import knee_of, note_on_noise, notes_on
from batchjobs.tuning.rows import on_sample, write_sample
from batchjobs.tuning.survey import room_of, survey
from batchjobs.tuning.table import line, name_of
from batchjobs.tuning.trial import Run, job_of, measure
from schemas.job import JobSpec
from schemas.tuning import Setting, Trial, Tuning, Variant

_TIMES = 4  # rows of the sample for each sequence of the largest setting: it is full for most of the time
_LEAST_ROWS, _MOST_ROWS = 64, 4096


@dataclass(frozen=True)
class Wanted:
    """What to try. Empty: what follows from the job."""

    rows: int | None = None
    max_num_seqs: Sequence[int] = ()
    max_num_batched_tokens: Sequence[int] = ()
    models: Sequence[str] = ()
    kv_cache_dtypes: Sequence[str] = ()
    within: float = 0.05
    runs: int = 1  # of each setting


@dataclass
class _Sweep:
    """What has been tried so far."""

    job: JobSpec  # references resolved, over the sample
    wanted: Wanted
    run: Run
    tell: Callable[[str], None]
    starts: int  # at the most
    trials: list[Trial] = field(default_factory=list)
    started: int = 0

    def go(self, plans: dict[Variant, tuple[Room, Axis]]) -> None:
        """Every variant. Raises KeyboardInterrupt when it is stopped."""
        for variant, (room, axis) in plans.items():
            self._axis(room, (Setting(variant=variant, max_num_seqs=seqs) for seqs in axis.values))
            best = knee_of(self.trials, variant, self.wanted.within)
            if best is None:
                continue
            measured = next(trial for trial in self.trials if trial.setting == best.setting)
            tokens = tokens_axis(room, measured, self.wanted.max_num_batched_tokens)
            self.skip(best.setting, "max_num_batched_tokens", tokens)
            self._axis(room, (best.setting.model_copy(update={"max_num_batched_tokens": n}) for n in tokens.values))

    def skip(self, setting: Setting, name: str, axis: Axis) -> None:
        """Note what is not tried, and why."""
        for value, why in axis.skipped.items():
            skipped = setting.model_copy(update={name: value})
            self.trials.append(Trial(setting=skipped, outcome="skipped", reason=why))

    def _axis(self, room: Room, settings: Iterable[Setting]) -> None:
        for setting in settings:
            why = known_to_fail(setting, self.trials)
            if why is not None:
                self.trials.append(Trial(setting=setting, outcome="skipped", reason=why))
                continue
            self.tell(f"[{self.started + 1} of at most {self.starts} starts] {name_of(setting)} …")
            self.started += self.wanted.runs
            job = job_of(self.job, setting.variant)
            self.trials.append(measure(job, setting, room.learnt, self.wanted.runs, self.run))
            self.tell(f"  {line(self.trials[-1])}")
            if self.trials[-1].outcome == "stopped":
                raise KeyboardInterrupt


def tune(job: JobSpec, wanted: Wanted, run: Run, tell: Callable[[str], None]) -> Tuning:
    """Try settings; what was measured until then, if it is stopped. `tell` takes lines about the progress.

    Raises Refused before anything is started if the job or a variant is not possible.
    """
    surveyed = survey(job)
    rooms = {each: room_of(surveyed, each) for each in variants(wanted.models, wanted.kv_cache_dtypes)}
    own = surveyed.job.engine.max_num_seqs
    axes = {v: seqs_axis(r, own if isinstance(own, int) else None, wanted.max_num_seqs) for v, r in rooms.items()}
    with tempfile.TemporaryDirectory(prefix="batchjobs-tune-") as folder:
        file = Path(folder, "rows.parquet")
        rows = write_sample(
            surveyed.job, surveyed.plan, surveyed.dataset, wanted.rows or _enough_rows(axes.values()), file
        )
        plans = {v: (rooms[v], _no_more_than_rows(axis, rows)) for v, axis in axes.items()}
        sweep = _Sweep(on_sample(surveyed.job, file), wanted, run, tell, _starts(surveyed.job, wanted, plans))
        for variant, (_, axis) in plans.items():
            sweep.skip(Setting(variant=variant, max_num_seqs=1), "max_num_seqs", axis)
        tell(f"Trying {rows:,} of {surveyed.plan.rows:,} rows: at most {sweep.starts} starts of the engine.")
        for variant, (_, axis) in plans.items():
            tell(_plan_in_words(variant, axis))
        stopped = False
        try:
            sweep.go(plans)
        except KeyboardInterrupt:
            stopped = True
        except DeviceBusy as problem:  # another job came between two settings
            if not any(trial.outcome == "measured" for trial in sweep.trials):
                raise
            tell(str(problem))
            stopped = True
    knees = [knee for v in plans if (knee := knee_of(sweep.trials, v, wanted.within)) is not None]
    tuning = Tuning(
        job=job.name,
        rows=rows,
        rows_of_job=surveyed.plan.rows,
        within=wanted.within,
        engine=f"{job.engine.kind} {engine_version(job)}",
        device=find_device(surveyed.job).name,
        trials=_sorted(sweep.trials, list(plans)),
        knees=knees,
        stopped=stopped,
    )
    return tuning.model_copy(update={"notes": list(_notes(tuning))})


def _enough_rows(axes: Iterable[Axis]) -> int:
    largest = max((seqs for axis in axes for seqs in axis.values), default=1)
    return min(_MOST_ROWS, max(_LEAST_ROWS, _TIMES * largest))


def _no_more_than_rows(axis: Axis, rows: int) -> Axis:
    """Without the values that the sample cannot fill."""
    beyond = {seqs: f"the sample has no more than {rows:,} rows" for seqs in axis.values if seqs > rows}
    return Axis([seqs for seqs in axis.values if seqs not in beyond], {**axis.skipped, **beyond})


def _starts(job: JobSpec, wanted: Wanted, plans: dict[Variant, tuple[Room, Axis]]) -> int:
    """Starts of the engine, at the most. The echo engine has no batched tokens."""
    tokens = 0 if job.engine.kind == "echo" else len(wanted.max_num_batched_tokens) or 2
    return wanted.runs * sum(len(axis.values) + tokens for _, axis in plans.values() if axis.values)


def _plan_in_words(variant: Variant, axis: Axis) -> str:
    tried = ", ".join(f"{seqs:,}" for seqs in axis.values) or "nothing"
    name = name_of(variant) or "the job as it is"
    return f"  {name}: max_num_seqs {tried}; then max_num_batched_tokens at the knee of these"


def _sorted(trials: list[Trial], order: list[Variant]) -> list[Trial]:
    def place(trial: Trial) -> tuple[int, int, int]:
        setting = trial.setting
        tokens = trial.max_num_batched_tokens or setting.max_num_batched_tokens or 0
        return order.index(setting.variant), setting.max_num_seqs, tokens

    return sorted(trials, key=place)


def _notes(tuning: Tuning) -> Iterator[str]:
    """What to know before the settings are used."""
    own = tuning.own_knee
    if own is None:
        return
    yield from notes_on(own, tuning.trials)
    yield from note_on_noise(tuning.trials, tuning.within)
    for knee in tuning.knees:
        gain = knee.total_tokens_per_s / own.total_tokens_per_s - 1
        if not knee.setting.variant.is_own and gain > tuning.within:
            yield (
                f"{name_of(knee.setting)}: {gain:+.0%}. It may answer differently, so it is not in the file: run the "
                "job both ways, then look at what `batchjobs compare` says of the answers."
            )
