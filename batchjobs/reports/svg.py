"""A matplotlib figure as inline SVG that follows the page's colours and fonts. No pyplot: nothing global is touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Drawn in these colours, which nothing else uses; in the page each becomes a variable of its style sheet, so that one
# drawing serves light and dark.
INK, MUTED, GRID, FIRST, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--line", FIRST: "--blue", SECOND: "--amber"}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "batchjobs",  # the same drawing has the same ids
    "font.size": 11,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "text.parse_math": False,  # a dollar is a dollar
}
_WIDTH, _HEIGHT = 500, 190  # of a drawing, in CSS pixels where it is shown at its own size


@contextmanager
def drawing() -> Iterator[tuple[Figure, Axes]]:
    """An empty figure in the page's style; one unit is one CSS pixel (matplotlib's SVG has 72 units an inch)."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72))
        yield figure, figure.add_axes((0.105, 0.16, 0.875, 0.74))


def inline(figure: Figure, name: str, title: str, description: str) -> Markup:
    """The figure as an `<svg>` element. `name` keeps its ids apart from those of other figures of the page."""
    stream = StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}  # whoever drew it, and when
    figure.savefig(stream, format="svg", metadata=nothing, transparent=True)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # it would hold for the whole page
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = _own_ids(svg, name)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} role="img" '
        f'aria-labelledby="{name}-title {name}-text"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(description)}</desc>'
    )
    return Markup(opening + svg[svg.index(">") + 1 :])


def _own_ids(svg: str, name: str) -> str:
    """Ids that something refers to get the figure's name before them, the others go."""
    used = set(re.findall(r'(?:href="|url\()#([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    return re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
