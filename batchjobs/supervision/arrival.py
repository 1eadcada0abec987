"""Input that is not there yet: `input.ready` says when it is complete, and how long a run waits for that.

Before anything is planned, locked or started, so waiting costs no engine. Each look is at the storage itself.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from glob import has_magic
from typing import Any

from batchjobs.accounts.units import clock, duration, plural
from batchjobs.data.dataset import find_files
from batchjobs.data.filesystem import open_url, told
from batchjobs.data.footers import read_footers
from batchjobs.errors import InputError, InputMissing, StoppedWaiting
from batchjobs.supervision.dispatcher import StopSignal
from schemas.deadline import parse_duration
from schemas.job import InputSpec, JobSpec, ReadySpec

logger = logging.getLogger("batchjobs")

_LOOKS = 20  # at least so many during a wait
_SHORTEST_S, _LONGEST_S = 1.0, 15.0  # between two looks
_SAY_AGAIN_S = 600.0  # that it still waits, for whoever reads the log


def await_input(job: JobSpec, deadline: datetime | None) -> None:
    """Return once the input is complete. `job` has its references resolved and an `input.ready`.

    Raises InputMissing if it is not within `input.ready.wait` or by the deadline, StoppedWaiting after SIGTERM or
    Ctrl-C, and InputError at once for what no waiting repairs.
    """
    assert job.input.ready is not None
    ready, began, stop = job.input.ready, datetime.now(UTC), StopSignal()
    wait = parse_duration(ready.wait) if ready.wait is not None else timedelta(0)
    end = min(began + wait, deadline) if deadline is not None else began + wait
    pause = min(max(wait.total_seconds() / _LOOKS, _SHORTEST_S), _LONGEST_S)
    told, told_at = "", 0.0
    with stop.on_signals():
        while missing := what_is_missing(job.input, ready):
            left = (end - datetime.now(UTC)).total_seconds()
            if left <= 0:
                raise InputMissing(_too_late(missing, ready, (datetime.now(UTC) - began).total_seconds()))
            if missing != told or time.monotonic() - told_at >= _SAY_AGAIN_S:
                logger.warning("Waiting for the input, until %s at most: %s.", clock(end, datetime.now(UTC)), missing)
                told, told_at = missing, time.monotonic()
            if stop.wait(min(pause, left)):
                break
    if stop.asked:
        raise StoppedWaiting(f"Stopped while it waited for the input ({missing or 'complete by now'}). {_AGAIN}")
    if told:
        logger.warning("The input is complete, after %s.", duration((datetime.now(UTC) - began).total_seconds()))


_AGAIN = "Nothing was changed; run the same command again to go on."


def _too_late(missing: str, ready: ReadySpec, waited_s: float) -> str:
    waited = (
        f"Waited {duration(waited_s)} for it (input.ready.wait is {ready.wait})."
        if ready.wait is not None
        else "It was not waited for: a backfill never waits, nor does a run without input.ready.wait (such as 2h)."
    )
    return f"The input is not complete: {missing}. {waited} Find out what writes it. {_AGAIN}"


def what_is_missing(spec: InputSpec, ready: ReadySpec) -> str:
    """What the input lacks to be complete, in words; empty if it lacks nothing. Raises InputError."""
    try:
        fs, found = find_files(spec.path, spec.storage_options)
    except InputMissing as problem:
        return str(problem).rstrip(".")
    if ready.marker is not None:
        for url in _markers(spec, ready.marker):
            if not _is_there(url, spec.storage_options):
                return f"{url} is not there"
    if ready.min_rows is None:
        return ""
    try:
        rows = sum(sum(footer.file.row_groups) for footer in read_footers(fs, found))
    except InputError as problem:  # a file that is still being written has no footer yet
        return str(problem).rstrip(".")
    there = f"{plural(rows, 'row')} in {plural(len(found), 'file')}"
    return f"there are {there}, at least {ready.min_rows:,} rows are to come" if rows < ready.min_rows else ""


def _markers(spec: InputSpec, marker: str) -> list[str]:
    """Where the marker has to be: a path is itself, a name is in the folder of each input path."""
    if "/" in marker:
        return [marker]
    paths = [spec.path] if isinstance(spec.path, str) else spec.path
    return list(dict.fromkeys(f"{_folder(path, spec.storage_options)}/{marker}" for path in paths))


def _folder(url: str, options: dict[str, Any]) -> str:
    """The folder that an input path is, that its file is in, or that is before the first magic part of its glob."""
    fs, place = open_url(url, options)
    if fs.isdir(place):
        return url.rstrip("/")
    parts = url.split("/")
    return "/".join(parts[: next((n for n, part in enumerate(parts) if has_magic(part)), len(parts) - 1)])


def _is_there(url: str, options: dict[str, Any]) -> bool:
    try:
        fs, place = open_url(url, options)
        fs.invalidate_cache()  # an earlier listing would hide what has arrived since
        fs.info(place)
    except FileNotFoundError:
        return False
    except Exception as error:  # filesystems raise their own kinds for wrong credentials, no network ...
        raise InputError(f"input.ready.marker: {url} cannot be looked for: {told(error)}") from error
    return True
