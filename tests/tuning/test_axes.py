"""Which settings are worth a start of the engine."""

from __future__ import annotations

from batchjobs.tuning.axes import Room, known_to_fail, seqs_axis, tokens_axis, variants
from schemas.tuning import Setting, Trial, Variant

FITS = "46,592 tokens of KV cache"


def at(seqs: int, tokens: int | None = None, **known: object) -> Trial:
    setting = Setting(max_num_seqs=seqs)
    return Trial(setting=setting, outcome="measured", runs=1, max_num_batched_tokens=tokens).model_copy(update=known)


def test_sequences_are_tried_around_what_fits_with_the_jobs_own_among_them() -> None:
    assert seqs_axis(Room(derived=64), None, ()).values == [16, 32, 64, 128]
    assert seqs_axis(Room(derived=64), 96, ()).values == [16, 32, 64, 96, 128]
    assert seqs_axis(Room(derived=121), 64, ()).values == [30, 64, 121, 242]  # 60 would tell nothing new
    assert seqs_axis(Room(derived=1), None, ()).values == [1, 2]
    assert seqs_axis(Room(), None, ()).values == [64, 128, 256, 512]
    assert seqs_axis(Room(), 8, ()).values == [2, 4, 8, 16]


def test_what_was_asked_for_is_tried_and_nothing_else() -> None:
    assert seqs_axis(Room(derived=64), 100, (48, 12)).values == [12, 48]


def test_sequences_that_cannot_fit_the_cache_are_not_tried_and_the_reason_is_told() -> None:
    axis = seqs_axis(Room(derived=64, fits=90, fits_why=FITS), None, ())
    assert axis.values == [16, 32, 64]
    assert axis.skipped == {128: f"no more than 90 fit: {FITS}"}


def test_what_an_earlier_run_had_to_lower_is_not_tried_again() -> None:
    axis = seqs_axis(Room(derived=64, learnt={"max_num_seqs": 32}), None, ())
    assert axis.values == [16, 32]
    assert axis.skipped == dict.fromkeys((64, 128), "an earlier run had to go down to 32")
    tokens = tokens_axis(Room(learnt={"max_num_batched_tokens": 4096}), at(32, 4096), ())
    assert tokens.values == [2048]
    assert tokens.skipped == {8192: "an earlier run had to go down to 4,096"}


def test_batched_tokens_are_tried_at_half_and_twice_of_what_the_engine_had() -> None:
    assert tokens_axis(Room(), at(32, 4096), ()).values == [2048, 8192]
    assert tokens_axis(Room(), at(32, 4096), (1024, 4096)).values == [1024]
    assert tokens_axis(Room(), at(32), ()).values == []  # an engine that has no such setting


def test_batched_tokens_that_vllm_refuses_or_that_cannot_be_used_are_not_tried() -> None:
    assert tokens_axis(Room(), at(256, 256), ()).skipped == {128: "vLLM wants no less than max_num_seqs, 256"}
    full = tokens_axis(Room(), at(8, 4096, kv_cache_tokens=5000), ())
    assert full.skipped == {8192: "the KV cache holds 5,000 tokens"}
    enough = tokens_axis(Room(longest_prompt=500), at(8, 4096), ())
    assert (enough.values, list(enough.skipped)) == ([2048], [8192])


def test_whatever_is_no_smaller_than_a_setting_that_ran_out_of_memory_is_known_to() -> None:
    out = at(64, outcome="failed", out_of_memory=True)
    assert known_to_fail(Setting(max_num_seqs=128), [out]) == "max_num_seqs 64 ran out of memory already"
    assert known_to_fail(Setting(max_num_seqs=32), [out]) is None
    assert known_to_fail(Setting(max_num_seqs=128), [at(64, outcome="failed")]) is None
    assert known_to_fail(Setting(max_num_seqs=128, variant=Variant(kv_cache_dtype="fp8")), [out]) is None
    with_tokens = [Trial(setting=Setting(max_num_seqs=32, max_num_batched_tokens=8192), outcome="failed",
                         out_of_memory=True)]  # fmt: skip
    assert known_to_fail(Setting(max_num_seqs=32, max_num_batched_tokens=16384), with_tokens) is not None
    assert known_to_fail(Setting(max_num_seqs=32, max_num_batched_tokens=4096), with_tokens) is None
    assert known_to_fail(Setting(max_num_seqs=64), with_tokens) is None


def test_the_jobs_own_variant_comes_first_and_every_model_meets_every_dtype() -> None:
    found = variants(["awq"], ["fp8"])
    assert found[0].is_own
    assert [(v.model, v.kv_cache_dtype) for v in found] == [(None, None), (None, "fp8"), ("awq", None), ("awq", "fp8")]
    assert variants([], []) == [Variant()]
