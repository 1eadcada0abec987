"""Writes that are for people only: what cannot be stored of them is no reason to fail a run whose parts can be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from batchjobs.errors import StorageFailed

logger = logging.getLogger("batchjobs")


class BestEffort:
    """Warns once, and goes on."""

    def __init__(self) -> None:
        self._warned = False

    @contextmanager
    def write(self) -> Iterator[None]:
        """A StorageFailed inside is a warning, the first time."""
        try:
            yield
        except StorageFailed as problem:
            if not self._warned:
                logger.warning("Progress and attempt records are not stored: %s. The run goes on.", problem)
            self._warned = True
