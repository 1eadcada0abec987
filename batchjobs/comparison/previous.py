"""A run that has just ended, held against the run before it of the same job name: tonight against last night."""

from __future__ import annotations

from collections.abc import Sequence

from batchjobs.comparison.figures import COST, ROWS, SPEED, side_by_side
from batchjobs.comparison.settings import differing
from schemas.history import HistoryRecord
from schemas.summary import Previous

LOOK_BACK = 100  # records; the runs of one output may be many, if it was often stopped, and so may backfills
_SMALL_S, _SMALL_ROWS = 5.0, 100  # generating less says nothing of speed and cost
_MOVES = ("input.path", "input.filter")  # another night has other rows: that is what it is for


def previous_of(now: HistoryRecord, earlier: Sequence[HistoryRecord]) -> Previous | None:
    """`now` against the night before it, of the earlier records (newest last) that generated rows into another output.

    For a job with a date that is the latest date before its own, whenever it was run: a backfill of old dates is held
    against theirs, and what it leaves does not come between two nights. Otherwise it is the newest record.
    None if there is none, or if no figure of this run is known. A run that found everything done, because the one that
    did it was killed at its very end, still has its shares of ill answers. Figures that a record of an older version
    lacks are null there.
    """
    candidates = [record for record in earlier if _is_another_night(record, now)]
    if not candidates:
        return None
    before = max(reversed(candidates), key=_date if now.summary.date is not None else lambda _: "")
    changes = side_by_side([*SPEED, *COST, *ROWS], before.summary, now.summary)
    if all(change.now is None for change in changes):
        return None
    settings = [
        f"{change.key}: {change.before or 'not set'} -> {change.now or 'not set'}"
        for change in differing(_identity(before), _identity(now))
        if change.key not in _MOVES
    ]
    return Previous(
        ended=before.ended,
        date=before.summary.date,
        same_settings=not settings,
        settings=settings,
        is_small=any(map(_is_small, (before, now))),
        changes=changes,
    )


def _is_another_night(record: HistoryRecord, now: HistoryRecord) -> bool:
    """Runs with the fingerprint of this one worked at the same output: it goes on from them."""
    is_later = now.summary.date is not None and _date(record) >= now.summary.date
    return record.summary.rows.generated > 0 and record.fingerprint != now.fingerprint and not is_later


def _date(record: HistoryRecord) -> str:
    """Its date; one of a job file without date variables is before all others."""
    return record.summary.date or ""


def _is_small(record: HistoryRecord) -> bool:
    return record.summary.seconds.generating < _SMALL_S or record.summary.rows.generated < _SMALL_ROWS


def _identity(record: HistoryRecord) -> dict[str, object]:
    """What should be equal for the figures to speak of the same thing."""
    versions = {f"version of {name}": version for name, version in record.versions.items()}
    return {**record.settings, "model by content": record.model_id, "device": record.device, **versions}
