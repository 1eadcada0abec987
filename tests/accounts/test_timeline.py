"""A run over time, in few steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchjobs.accounts.timeline import TimelineRecorder
from schemas.summary import Timeline


def test_a_run_that_has_not_begun_has_no_steps() -> None:
    assert TimelineRecorder().timeline() == Timeline()


def test_levels_are_means_over_a_step_and_tokens_are_spread_evenly() -> None:
    recorder = TimelineRecorder()
    recorder.interval(0, 0.5, 2.5, 4, 8, 0.5, 200, 40)
    recorder.done(2.5, 7)
    found = recorder.timeline()
    assert found.step_s == 1
    assert found.running == pytest.approx([2, 4, 4])  # half of the first second, and all of what there is of the last
    assert found.waiting == pytest.approx([4, 8, 8])
    assert found.prompt_tokens_per_s == pytest.approx([50, 100, 100])
    assert found.output_tokens_per_s == pytest.approx([10, 20, 20])
    assert found.kv_cache_usage == [0.5, 0.5, 0.5]
    assert found.rows_done == [0, 0, 7]


def test_replicas_are_added_up_and_the_fullest_cache_is_shown() -> None:
    recorder = TimelineRecorder()
    recorder.interval(0, 0, 2, 3, 0, 0.2, 20, 20)
    recorder.interval(1, 1, 2, 5, 2, 0.9, 10, 0)
    found = recorder.timeline()
    assert found.running == pytest.approx([3, 8])
    assert found.waiting == pytest.approx([0, 2])
    assert found.prompt_tokens_per_s == pytest.approx([10, 20])
    assert found.kv_cache_usage == pytest.approx([0.2, 0.9])


def test_what_is_not_known_is_null_and_a_silent_time_is_zero() -> None:
    recorder = TimelineRecorder()
    recorder.interval(0, 0, 1, 1, 0, None, 5, 5)
    recorder.interval(0, 3, 4, 1, 0, None, 5, 5)  # another life, after a death and a restart
    recorder.done(1, 2)
    found = recorder.timeline()
    assert found.kv_cache_usage == [None] * 4
    assert found.running == [1, 0, 0, 1]
    assert found.rows_done == [0, 2, 2, 2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 3000), st.floats(0.01, 200), st.integers(0, 999)), max_size=20),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_the_order_in_which_replicas_are_heard_changes_nothing(
    intervals: list[tuple[int, float, float, int]], rng: random.Random
) -> None:
    def recorded() -> Timeline:
        recorder = TimelineRecorder()
        for replica, begin, length, tokens in intervals:
            recorder.interval(replica, begin, begin + length, tokens / 10, 1, None, 0, tokens)
        return recorder.timeline()

    one = recorded()
    rng.shuffle(intervals)
    other = recorded()
    assert one.step_s == other.step_s
    for name in ("running", "waiting", "output_tokens_per_s"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-6)


@pytest.mark.parametrize("seconds", [239.5, 240, 241, 1000, 86_400])
def test_there_are_never_more_than_240_steps_and_nothing_is_lost_by_merging(seconds: float) -> None:
    recorder, rng, now, prompt, area = TimelineRecorder(), random.Random(1), 0.0, 0, 0.0
    while now < seconds:
        end = min(seconds, now + rng.uniform(0.5, 20))
        running, tokens = rng.randrange(100), rng.randrange(1000)
        recorder.interval(0, now, end, running, 0, 0.5, tokens, 0)
        prompt, area, now = prompt + tokens, area + running * (end - now), end
        recorder.done(now, prompt)
    found = recorder.timeline()
    steps = len(found.running)
    assert seconds / found.step_s <= steps <= 240
    assert found.step_s <= max(1, 2 * seconds / 240)
    lengths = [min(found.step_s, seconds - n * found.step_s) for n in range(steps)]
    assert sum(r * s for r, s in zip(found.prompt_tokens_per_s, lengths, strict=True)) == pytest.approx(prompt)
    assert sum(r * s for r, s in zip(found.running, lengths, strict=True)) == pytest.approx(area)
    assert found.rows_done == sorted(found.rows_done)
    assert found.rows_done[-1] == prompt
    assert found.kv_cache_usage == pytest.approx([0.5] * steps)
