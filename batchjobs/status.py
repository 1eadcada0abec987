"""State and progress of a job from its output folder alone. Imports little: it answers in a moment."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from batchjobs.accounts.units import clock, dollars, duration
from batchjobs.storage.holder import holder_of
from batchjobs.storage.output import ATTEMPTS, PLAN, PROGRESS, SUMMARY, WAITING, not_ours
from batchjobs.storage.store import Store, open_store

_SHOWN = ("attempt", "started", "ended", "cause", "failure", "remedy", "rows_done")
_LAST_ATTEMPTS = 10
_PART = re.compile(r"part-\d{6,}\.parquet")


def read_status(output: str) -> dict[str, Any]:
    """State, shards, rows and the latest progress or summary; raises OutputError if it is no output of ours."""
    store = open_store(output)
    plan, is_held = _read(store, PLAN), holder_of(store) is not None
    waiting = _read(store, WAITING) if is_held else None  # a killed run may have left it
    if plan is not None:
        rows, shards = sum(rows for _, rows in plan["shards"]), len(plan["shards"])
    elif waiting is not None:
        rows, shards = waiting["rows"], waiting["shards"]
    else:
        raise not_ours(store)
    parts = sum(1 for name in store.names() if _PART.fullmatch(name))
    summary, progress = _read(store, SUMMARY), _read(store, PROGRESS)
    attempts = [found for name in store.names(ATTEMPTS) if (found := _read(store, f"{ATTEMPTS}/{name}"))]
    return {
        "state": _state(is_held, waiting, summary, progress),
        "output": output,
        "rows": rows,
        "shards": {"total": shards, "committed": parts},
        "waiting": waiting["text"] if waiting is not None else None,
        "attempts": [{name: attempt[name] for name in _SHOWN} for attempt in attempts],
        "quarantined": {row: words for attempt in attempts for row, words in attempt["quarantined"].items()},
        "progress": progress,
        "summary": summary,
    }


def _read(store: Store, name: str) -> Any:
    """The JSON in a file; None if it is not there, or damaged: then a run has to repair it, not a look."""
    data = store.read(name)
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return None


def _state(is_held: bool, waiting: Any, summary: Any, progress: Any) -> str:
    if is_held:
        return "running" if waiting is None else "waiting"
    if progress is not None:  # a run in order takes it away at its end
        return "interrupted"
    return str(summary["state"]) if summary is not None else "interrupted"


def _ahead(progress: dict[str, Any]) -> list[str]:
    """What is left, beside the limits of the run."""
    now, lines = datetime.now(UTC), []
    moments = {name: datetime.fromisoformat(at) for name in ("ends_at", "deadline") if (at := progress.get(name))}
    if progress["seconds_left"] is not None:
        ends = f", until {clock(moments['ends_at'], now)}" if "ends_at" in moments else ""
        lines.append(f"left    about {duration(progress['seconds_left'])}{ends}")
    if "deadline" in moments:
        lines.append(f"limit   run.deadline {clock(moments['deadline'], now)}")
    if (most := progress.get("max_cost_usd")) is not None:
        forecast = progress.get("usd_forecast")
        cost = f", about {dollars(forecast)} when all is done" if forecast is not None else ""
        lines.append(f"limit   run.max_cost_usd {dollars(most)}: {dollars(progress['usd_so_far'] or 0)} so far{cost}")
    return lines


def describe(found: dict[str, Any]) -> str:
    """The status in a few lines."""
    shards, progress, summary = found["shards"], found["progress"], found["summary"]
    lines = [
        f"{found['output']}: {found['state']}",
        f"shards  {shards['committed']:,} of {shards['total']:,} committed",
    ]
    if found.get("waiting") is not None:
        lines.append(found["waiting"])
    elif progress is not None:
        lines.append(
            f"rows    {progress['rows_done']:,} of {progress['rows_total']:,} done, {progress['errors']:,} errors"
        )
        if found["state"] == "running":
            lines += _ahead(progress)
    elif summary is not None:
        rows = summary["rows"]
        lines.append(f"rows    {rows['ok']:,} ok, {rows['error']:,} errors, of {found['rows']:,}")
        lines.append(summary["message"])
    for attempt in found["attempts"][-_LAST_ATTEMPTS:]:
        why = f": {attempt['failure']}" if attempt["failure"] else ""
        then = f"; then {attempt['remedy']}" if attempt["remedy"] else ""
        lines.append(
            f"attempt {attempt['attempt']}  {attempt['cause'] or 'running'}, {attempt['rows_done']:,} rows{why}{then}"
        )
    for row, words in found["quarantined"].items():
        lines.append(f"quarantined  row {row}: {words}")
    if found["state"] == "interrupted":
        lines.append("Run the same command again to go on.")
    return "\n".join(lines)
