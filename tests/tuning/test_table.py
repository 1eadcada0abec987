"""What people see of a tune."""

from __future__ import annotations

from batchjobs.tuning.knee import knee_of
from batchjobs.tuning.table import line, name_of, text
from schemas.tuning import Setting, Trial, Tuning, Variant

OWN, FP8 = Variant(), Variant(kv_cache_dtype="fp8")


def measured(seqs: int, speed: float, variant: Variant = OWN, tokens: int | None = None) -> Trial:
    return Trial(
        setting=Setting(variant=variant, max_num_seqs=seqs, max_num_batched_tokens=tokens),
        outcome="measured",
        runs=1,
        max_num_batched_tokens=tokens or 4096,
        rows_per_s=speed / 100,
        total_tokens_per_s=speed,
        tpot_p95_s=0.0123,
        kv_cache_usage_peak=0.5,
    )


def tuning(*trials: Trial) -> Tuning:
    found = [knee for v in dict.fromkeys(t.setting.variant for t in trials) if (knee := knee_of(trials, v, 0.05))]
    known = {"job": "t", "rows": 10, "rows_of_job": 20, "within": 0.05, "engine": "vllm 0.32.0", "device": "cpu"}
    return Tuning.model_validate({**known, "trials": trials, "knees": found})


def test_the_knee_and_the_fastest_are_marked_and_the_verdict_names_both() -> None:
    shown = text(tuning(measured(8, 500), measured(16, 970), measured(32, 1000))).splitlines()
    assert shown[0] == "t: 10 of 20 rows on cpu, vllm 0.32.0"
    assert shown[2].split() == ["max_num_seqs", "batched", "tokens", "rows/s", "total", "tok/s", "TPOT", "P95", "ms",
                                "peak", "KV"]  # fmt: skip
    assert shown[4].split() == ["16", "4,096", "9.70", "970", "12.3", "50%", "knee"]
    assert shown[5].endswith("fastest")
    assert shown[7] == (
        "Use max_num_seqs 16: 970 total tokens/s, the smallest setting within 5% of the fastest "
        "(1,000 with max_num_seqs 32)."
    )


def test_what_was_not_measured_says_why_in_one_line() -> None:
    failed = Trial(setting=Setting(max_num_seqs=64), outcome="failed", reason="boom\nTraceback " + "x" * 500)
    shown = text(tuning(measured(8, 500), failed))
    assert "failed: boom\n" in shown
    assert "Traceback" not in shown
    assert line(failed) == "failed: boom"


def test_variants_have_a_column_and_a_knee_each() -> None:
    shown = text(tuning(measured(8, 500), measured(8, 700, FP8), measured(16, 900, FP8, 2048))).splitlines()
    assert shown[2].startswith("variant")
    assert shown[3].startswith("the job's own")
    assert shown[5].startswith("kv_cache_dtype fp8")
    assert [row.endswith("knee") for row in shown[3:6]] == [True, False, True]
    assert name_of(Setting(variant=FP8, max_num_seqs=16, max_num_batched_tokens=2048)) == (
        "kv_cache_dtype fp8, max_num_seqs 16, max_num_batched_tokens 2,048"
    )
