"""The pictures of a report: what the run did over time, and how long prompts and answers are."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from batchjobs.reports.svg import FIRST, GRID, INK, MUTED, SECOND, drawing, inline
from schemas.figures import Distribution
from schemas.summary import Timeline

_BINS = 40
_LONG_TAIL = 20  # times the median: from there on, a logarithmic axis
_UNITS = ((2 * 3600, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))  # from so many seconds, length, name


@dataclass(frozen=True)
class Plot:
    """A picture with the words around it."""

    title: str
    svg: Markup
    legend: list[tuple[str, str]]  # class of the colour, name
    note: str = ""


Series = list[float] | list[float | None]


def timeline_plots(timeline: Timeline, slots: int | None) -> list[Plot]:
    """Throughput, requests and KV use over time; `slots` is how many requests all engines can run at once."""
    if not timeline.step_s or not timeline.running:
        return []
    running, waiting = timeline.running, timeline.waiting
    return [
        _over_time(timeline, "output", "Output tokens per second", [("", timeline.output_tokens_per_s)]),
        _over_time(timeline, "prompt", "Prompt tokens per second", [("", timeline.prompt_tokens_per_s)]),
        _over_time(timeline, "requests", "Requests", [("running", running), ("waiting", waiting)], slots),
        _over_time(timeline, "kv", "KV cache in use", [("", timeline.kv_cache_usage)], share=True),
    ]


def _over_time(
    timeline: Timeline,
    name: str,
    title: str,
    series: list[tuple[str, Series]],
    level: float | None = None,
    share: bool = False,
) -> Plot:
    length, unit = next((length, unit) for least, length, unit in _UNITS if _span(timeline) >= least)
    values = [np.array([math.nan if value is None else value for value in own], float) for _, own in series]
    known = np.concatenate(values)
    if not np.isfinite(known).any():
        return Plot(title, Markup(""), [], "not known")
    with drawing() as (figure, axes):
        for own, colour in zip(values, (FIRST, SECOND), strict=False):
            edges = np.arange(len(own) + 1) * timeline.step_s / length
            axes.stairs(own, edges, color=colour, linewidth=1.5, baseline=None)
            if colour == FIRST:
                axes.fill_between(edges, np.append(own, own[-1:]), step="post", color=colour, alpha=0.12, linewidth=0)
        if level is not None:
            axes.axhline(level, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        top = max(float(np.nanmax(known)), level or 0)
        axes.set_ylim(0, 1 if share and top > 0.5 else top * 1.08 or 1)
        axes.set_xlim(0, _span(timeline) / length)
        _ticks(axes, share)
        axes.annotate(unit, (1, 0), (0, -21), "axes fraction", "offset points", ha="right", va="bottom", color=MUTED)
        _without_last_label(axes)
        figures = [_figures(own, share) for own in values]
        named = [(colour, own) for colour, (own, _) in zip(("blue", "amber"), series, strict=False) if own]
        if level is not None and named:
            named.append(("dash", f"limit {level:,.0f}"))
        told = "; ".join(f"{own} {words}".strip() for (own, _), words in zip(series, figures, strict=True))
        words = f"Over {_span(timeline) / length:.1f} {unit}: {told}."
        return Plot(title, inline(figure, name, title, words), named, "" if named else figures[0])


def _figures(values: np.ndarray, share: bool) -> str:
    mean, peak = float(np.nanmean(values)), float(np.nanmax(values))
    return f"mean {mean:.1%}, peak {peak:.1%}" if share else f"mean {mean:,.0f}, peak {peak:,.0f}"


def _span(timeline: Timeline) -> float:
    return timeline.step_s * len(timeline.running)


def _ticks(axes: Axes, share: bool = False, is_logarithmic: bool = False) -> None:
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)) if is_logarithmic else MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}" if share else short(value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _without_last_label(axes: Axes) -> None:
    """The unit stands at the right end of the axis: labels keep clear of it."""
    low, high = axes.get_xlim()
    ticks = axes.xaxis.get_major_locator().tick_values(low, high)
    axes.set_xticks([tick for tick in ticks if low <= tick <= low + 0.86 * (high - low)])


def short(value: float) -> str:
    """A label of an axis: `850`, `1.5k`, `20k`, `3M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def length_plot(name: str, title: str, counts: Counter[int], known: Distribution) -> Plot | None:
    """How many rows have how many tokens; None if there are none."""
    if not counts or not known.max or known.p50 is None or known.p95 is None:
        return None
    is_long = known.max > _LONG_TAIL * max(1, known.p50)
    lengths = np.maximum(np.array(list(counts)), 1 if is_long else 0)  # a logarithm wants no 0
    edges = _edges(int(lengths.min()), known.max, is_long)
    heights, _ = np.histogram(lengths, edges, weights=list(counts.values()))
    with drawing() as (figure, axes):
        axes.stairs(heights, edges, fill=True, color=FIRST, alpha=0.8, linewidth=0)
        axes.axhline(0, color=GRID, linewidth=1)
        if is_long:
            axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, heights.max() * 1.18)
        marks = {"P50": known.p50, "P95": known.p95}
        for at in marks.values():
            axes.axvline(at, color=INK, linewidth=1, linestyle=(0, (2, 2)))
        _name_marks(axes, marks, is_long)
        _ticks(axes, is_logarithmic=is_long)
        _without_last_label(axes)
        axes.annotate(
            "tokens", (1, 0), (0, -21), "axes fraction", "offset points", ha="right", va="bottom", color=MUTED
        )
        told = f"mean {known.mean:,.0f}, longest {known.max:,}"
        words = f"P50 {known.p50:,.0f} tokens, P95 {known.p95:,.0f}, {told}."
        return Plot(title, inline(figure, name, title, words), [], told)


def _edges(shortest: int, longest: int, is_long: bool) -> np.ndarray:
    """Edges of bins of whole tokens, so that no bin is fuller only because it holds one more number."""
    if is_long:
        return np.unique(np.geomspace(shortest, longest + 1, _BINS + 1).round().astype(int))
    width = max(1, math.ceil((longest + 1 - shortest) / _BINS))
    count = math.ceil((longest + 1 - shortest) / width)
    return shortest + width * np.arange(count + 1)


def _name_marks(axes: Axes, marks: dict[str, float], is_long: bool) -> None:
    """Names of vertical lines, on the side where there is room; two that stand close are named outwards."""
    low, high = axes.get_xlim()
    place = (
        (lambda at: math.log(at / low) / math.log(high / low)) if is_long else (lambda at: (at - low) / (high - low))
    )
    places = {mark: place(at) for mark, at in marks.items()}
    close = abs(places["P95"] - places["P50"]) < 0.12
    for mark, at in marks.items():
        left = places[mark] > 0.9 or (close and mark == "P50" and places[mark] > 0.1)
        axes.annotate(
            f"{mark} {at:,.0f}", (at, 1), (-4 if left else 4, -2), ("data", "axes fraction"), "offset points",
            ha="right" if left else "left", va="top", color=INK,
        )  # fmt: skip
