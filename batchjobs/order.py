"""In which order the requests of a window are fed. Never changes the order of results, row identity or resume."""

from __future__ import annotations

from batchjobs.engines.base import Request
from schemas.job import Order


def expected_tokens(request: Request) -> int:
    """Expected total work of a request in tokens: its prompt plus the most it may answer."""
    return len(request.token_ids) + request.max_tokens


def ordered(requests: list[Request], order: Order) -> list[Request]:
    """The requests in feeding order. `auto` is longest first: a short tail, and memory trouble in the first minute."""
    if order == "input":
        return requests
    return sorted(requests, key=expected_tokens, reverse=order != "shortest_first")
