"""What a run has seen so far: the raw material of progress and summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from batchjobs.checkpoint import Commit


@dataclass
class RunFigures:
    """What a run's replica told, and what the dispatcher saw."""

    commits: list[Commit] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    ready_s: float | None = None  # seconds from process start to a ready engine
    held_s: float = 0.0  # seconds from process start to exit
    last: dict[str, Any] = field(default_factory=dict)  # the latest progress message
    stopped: bool = False
    failure: str | None = None
