"""Identical requests of a window: one is fed, the others get a copy of its result."""

from __future__ import annotations

from batchjobs.engines.base import Request
from batchjobs.replica.window import Fed, Followers
from batchjobs.rows.sampling import deterministic
from schemas.job import Deduplicate


def may_share(request: Request, choice: Deduplicate) -> bool:
    """Whether another row with the same `request_hash` may have this request's result."""
    return choice == "always" or (choice == "auto" and deterministic(request.sampling))


def distinct(fed: Fed, choice: Deduplicate) -> tuple[Fed, Followers]:
    """The requests to run, and by the row of each of them the rows that get a copy. The first of equals is run."""
    if choice == "never":
        return fed, {}
    first: dict[str, int] = {}
    unique: Fed = []
    followers: Followers = {}
    for request, shard in fed:
        row = first.setdefault(request.request_hash, request.row) if may_share(request, choice) else request.row
        if row == request.row:
            unique.append((request, shard))
        else:
            followers.setdefault(row, []).append((request.row, shard))
    return unique, followers
