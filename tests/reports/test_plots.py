"""The pictures, as SVG inside of a page."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from batchjobs.reports.lengths import distribution
from batchjobs.reports.plots import length_plot, short, timeline_plots
from schemas.summary import Timeline
from tests.reports.samples import timeline


def test_the_same_figures_give_the_same_picture_in_colours_of_the_page() -> None:
    first, again = (timeline_plots(timeline(), 256)[0].svg for _ in range(2))
    assert first == again
    assert "var(--blue)" in first
    assert not re.search(r"#[0-9a-f]{6}\b", first), "no colour of its own: light and dark are the page's"
    assert "<style" not in first, "it would hold for the whole page"
    assert len(first) < 30_000


def test_a_run_without_a_timeline_or_without_kv_figures_has_no_such_picture() -> None:
    assert timeline_plots(Timeline(), 4) == []
    nothing = Timeline(
        step_s=1, running=[1], waiting=[0], kv_cache_usage=[None], prompt_tokens_per_s=[0], output_tokens_per_s=[0]
    )
    pictures = {plot.title: plot for plot in timeline_plots(nothing, None)}
    assert pictures["KV cache in use"].note == "not known"
    assert "<svg" in pictures["Requests"].svg


@pytest.mark.parametrize(("step_s", "unit"), [(0.1, "seconds"), (2, "minutes"), (60, "hours")])
def test_the_time_axis_has_a_unit_that_fits(step_s: float, unit: str) -> None:
    assert f">{unit}<" in timeline_plots(timeline(step_s=step_s), None)[0].svg


@pytest.mark.parametrize(
    "counts",
    [{1: 1}, {0: 3, 1: 2}, {48: 1_000_000}, dict.fromkeys(range(1, 3000), 1), {0: 5, 10: 900, 131_072: 1}],
    ids=["one", "none and one", "all alike", "spread", "long tail"],
)
def test_any_lengths_can_be_drawn(counts: dict[int, int]) -> None:
    counted = Counter(counts)
    plot = length_plot("lengths", "Lengths", counted, distribution(counted))
    assert (plot is None) == (distribution(counted).max == 0)
    if plot is not None:
        assert "P50" in plot.svg
        assert "nan" not in plot.svg


@pytest.mark.parametrize(
    ("value", "label"), [(0, "0"), (2.5, "2.5"), (850, "850"), (1_500, "1.5k"), (20_000, "20k"), (3e6, "3M")]
)
def test_labels_of_axes_are_short(value: float, label: str) -> None:
    assert short(value) == label
