"""What a storage raises becomes one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchjobs.data.filesystem import told
from batchjobs.errors import BatchjobsError, StorageFailed


@contextmanager
def storage_errors(doing: str, where: str | Path) -> Iterator[None]:
    """Whatever the storage raises becomes a sentence that says what failed and where.

    Each filesystem raises its own kinds. What is raised about the content of a file (ValueError, KeyError) passes.
    """
    try:
        yield
    except (BatchjobsError, ValueError, KeyError, MemoryError):
        raise
    except Exception as problem:
        raise StorageFailed(f"cannot {doing} {where}: {told(problem)}") from problem
