"""Whether a run changed more against the one before it than `baseline` in its job file allows."""

from __future__ import annotations

from schemas.job import BaselineSpec
from schemas.summary import EXIT_CODES, Change, Previous, State, Summary

# What the figures of `Previous.changes` are called that a threshold looks at.
TOKENS_PER_S = "total tokens/s"
USD_PER_1K_ROWS = "per 1,000 rows"
FAILED = "failed rows"
TRUNCATED = "truncated answers"
EMPTY = "empty answers"
REPETITIVE = "repetitive answers"
MEAN_OUTPUT_TOKENS = "mean output tokens"

_NEED_TIME = (TOKENS_PER_S, USD_PER_1K_ROWS)
_ROUNDING = 1e-9  # 0.3 - 0.2 is not more than 0.1


def judged(summary: Summary, spec: BaselineSpec) -> Summary:
    """The summary with the breaches of its `previous`, in its state and message too."""
    if summary.previous is None:
        return summary
    previous = _with_breaches(summary.previous, spec)
    state = state_after(summary.state, previous, spec)
    message = summary.message
    if found := breaches(previous):
        of = f" of {previous.date}" if previous.date is not None else ""
        message += f" Against the run{of} that ended {previous.ended:%Y-%m-%d %H:%M} UTC: {'; '.join(found)}."
    if state != summary.state:
        message += (
            " The results are complete; they are held back (no _SUCCESS) until somebody has looked at them. To accept "
            "them, raise that threshold of `baseline`, or set `baseline.on_breach: warn`, and run again."
        )
    return summary.model_copy(
        update={"previous": previous, "state": state, "exit_code": EXIT_CODES[state], "message": message}
    )


def state_after(state: State, previous: Previous | None, spec: BaselineSpec) -> State:
    """The state of a run that would end as `state`, if it is held against the thresholds."""
    if state != "completed" or previous is None or spec.on_breach == "warn":
        return state
    return "partial" if breaches(_with_breaches(previous, spec)) else state


def breaches(previous: Previous | None) -> list[str]:
    """A sentence for each threshold that is exceeded."""
    return [change.breach for change in previous.changes if change.breach is not None] if previous is not None else []


def _with_breaches(previous: Previous, spec: BaselineSpec) -> Previous:
    changes = [
        change.model_copy(update={"breach": None if previous.is_small and change.figure in _NEED_TIME else found})
        for change in previous.changes
        for found in [_breach(change, spec)]
    ]
    return previous.model_copy(update={"changes": changes})


def _breach(change: Change, spec: BaselineSpec) -> str | None:
    before, now, relative = change.before, change.now, change.relative
    if before is None or now is None:
        return None
    limits = {  # figure -> key, limit, how far it went in the direction that the limit is for
        TOKENS_PER_S: ("max_slowdown", spec.max_slowdown, -(relative or 0.0)),
        USD_PER_1K_ROWS: ("max_cost_increase", spec.max_cost_increase, relative or 0.0),
        FAILED: ("max_error_increase", spec.max_error_increase, now - before),
        TRUNCATED: ("max_truncated_increase", spec.max_truncated_increase, now - before),
        EMPTY: ("max_empty_increase", spec.max_empty_increase, now - before),
        REPETITIVE: ("max_repetitive_increase", spec.max_repetitive_increase, now - before),
        MEAN_OUTPUT_TOKENS: ("max_length_shift", spec.max_length_shift, abs(relative or 0.0)),
    }
    key, limit, went = limits.get(change.figure, ("", None, 0.0))
    if limit is None or went <= limit + _ROUNDING:
        return None
    shown = f"{before:.1%} to {now:.1%}" if change.unit == "share" else f"{before:,.4g} to {now:,.4g}"
    return f"{change.figure} went from {shown} (baseline.{key} {limit:.3g})"
