"""Who works on an output now: for people, and to ask that process to stop. It decides nothing; the locks do."""

from __future__ import annotations

import fcntl
import json
from contextlib import suppress
from typing import Any

from batchjobs.storage.lease import is_held
from batchjobs.storage.output import LOCK
from batchjobs.storage.store import LocalStore, Store


def holder_of(store: Store) -> dict[str, Any] | None:
    """What the holder has told of itself (`lease.myself`), {} if that is not known; None if nobody holds the output."""
    if not isinstance(store, LocalStore):
        return {} if is_held(store) else None
    with suppress(FileNotFoundError), (store.root / LOCK).open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(ValueError):
                told = json.loads(stream.read())
                if isinstance(told, dict):
                    return told
            return {}
    return None
