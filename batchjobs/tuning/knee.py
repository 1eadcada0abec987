"""Which of the measured settings to use: the knee, not the maximum.

The rule: of all settings whose total tokens per second are within a share (5 %) of the fastest one's, the smallest,
by `max_num_seqs` first and `max_num_batched_tokens` second. The reason: throughput flattens as a batch grows, and what
the last few percent cost is not on the same scale. Every token comes later, the KV cache is fuller, so that rows longer
than those of the sample preempt others, and more memory is held for activations; and differences of this size are about
what two runs of the same setting differ by.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.tuning import Knee, Trial, Variant


def knee_of(trials: Sequence[Trial], variant: Variant, within: float) -> Knee | None:
    """The knee among the measured trials of a variant; None if there is none."""
    measured = [trial for trial in trials if trial.setting.variant == variant and trial.total_tokens_per_s is not None]
    if not measured:
        return None
    fastest = max(measured, key=_speed)
    chosen = min((trial for trial in measured if _speed(trial) >= (1 - within) * _speed(fastest)), key=_size)
    return Knee(
        setting=chosen.setting,
        total_tokens_per_s=_speed(chosen),
        fastest=fastest.setting,
        fastest_total_tokens_per_s=_speed(fastest),
    )


def _speed(trial: Trial) -> float:
    return trial.total_tokens_per_s or 0.0


def _size(trial: Trial) -> tuple[int, int]:
    return trial.setting.max_num_seqs, trial.max_num_batched_tokens or 0


def notes_on(knee: Knee, trials: Sequence[Trial]) -> list[str]:
    """What the sweep leaves open: a knee at the edge of what was tried."""
    seqs = [t.setting.max_num_seqs for t in trials if t.setting.variant == knee.setting.variant and t.runs]
    if len(set(seqs)) < 2:
        return []
    if knee.setting.max_num_seqs == min(seqs):
        return [
            f"The smallest max_num_seqs that was tried, {min(seqs):,}, is fast enough: a smaller one may be, too. "
            "Try some with --max-num-seqs."
        ]
    if knee.setting.max_num_seqs == max(seqs):
        return [
            f"The largest max_num_seqs that was tried, {max(seqs):,}, is the knee: throughput was still rising. "
            "Try more with --max-num-seqs."
        ]
    return []
