"""What the template draws: everything is text already."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fact:
    """A name with its value."""

    name: str
    value: str
    mark: str = ""  # good, warn or bad: the colour of the value


@dataclass(frozen=True)
class Tile:
    """A key figure."""

    name: str
    value: str
    note: str = ""
    mark: str = ""


@dataclass
class Table:
    """Rows under a head; columns in `numbers` are aligned to the right."""

    head: list[str]
    numbers: frozenset[int] = frozenset()
    rows: list[list[str]] = field(default_factory=list)
    marks: dict[int, str] = field(default_factory=dict)  # row -> good, warn or bad


@dataclass(frozen=True)
class Segment:
    """A piece of the accounting's bar."""

    label: str
    percent: float  # width
    seconds: str
    share: str
    usd: str
    meaning: str
