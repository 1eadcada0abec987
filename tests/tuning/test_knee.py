"""Which of the measured settings is recommended."""

from __future__ import annotations

from batchjobs.tuning.knee import knee_of, notes_on
from schemas.tuning import Setting, Trial, Variant

OWN, FP8 = Variant(), Variant(kv_cache_dtype="fp8")


def measured(seqs: int, speed: float, tokens: int = 4096, variant: Variant = OWN) -> Trial:
    setting = Setting(variant=variant, max_num_seqs=seqs)
    return Trial(setting=setting, outcome="measured", runs=1, max_num_batched_tokens=tokens, total_tokens_per_s=speed)


def chosen(trials: list[Trial], within: float = 0.05, variant: Variant = OWN) -> int:
    knee = knee_of(trials, variant, within)
    assert knee is not None
    return knee.setting.max_num_seqs


def test_the_smallest_setting_that_is_nearly_as_fast_as_the_fastest_is_the_knee() -> None:
    trials = [measured(8, 500), measured(16, 900), measured(32, 960), measured(64, 1000), measured(128, 990)]
    assert chosen(trials) == 32
    assert chosen(trials, within=0.1) == 16
    assert chosen(trials, within=0) == 64


def test_of_equal_sequences_fewer_batched_tokens_are_the_smaller_setting() -> None:
    trials = [measured(32, 1000, 4096), measured(32, 980, 2048), measured(32, 700, 1024)]
    knee = knee_of(trials, OWN, 0.05)
    assert knee is not None
    assert (knee.total_tokens_per_s, knee.fastest_total_tokens_per_s) == (980, 1000)


def test_each_variant_has_a_knee_of_its_own_and_one_without_a_measurement_has_none() -> None:
    failed = Trial(setting=Setting(variant=FP8, max_num_seqs=8), outcome="failed", reason="no")
    assert knee_of([measured(8, 100), failed], FP8, 0.05) is None
    assert chosen([measured(8, 100), measured(64, 900, variant=FP8)]) == 8


def test_a_knee_at_the_edge_of_what_was_tried_is_said_so() -> None:
    def notes(*speeds: float) -> str:
        trials = [measured(8 << place, speed) for place, speed in enumerate(speeds)]
        knee = knee_of(trials, OWN, 0.05)
        assert knee is not None
        return " ".join(notes_on(knee, trials))

    assert "a smaller one may be" in notes(100, 101, 102)
    assert "still rising" in notes(100, 200, 300)
    assert notes(100, 200, 201) == ""
