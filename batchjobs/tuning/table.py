"""What was tried, for people: a line for each setting, the knee marked, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.tuning import Setting, Trial, Tuning, Variant

_LONG = 160  # characters of a remark

_COLUMNS: tuple[tuple[str, Callable[[Trial], str]], ...] = (
    ("max_num_seqs", lambda t: f"{t.setting.max_num_seqs:,}"),
    ("batched tokens", lambda t: _number(t.max_num_batched_tokens or t.setting.max_num_batched_tokens)),
    ("rows/s", lambda t: _number(t.rows_per_s, ",.2f")),
    ("output tok/s", lambda t: _number(t.output_tokens_per_s)),
    ("total tok/s", lambda t: _number(t.total_tokens_per_s)),
    ("TTFT P95 s", lambda t: _number(t.ttft_p95_s, ",.2f")),
    ("TPOT P95 ms", lambda t: _number(None if t.tpot_p95_s is None else 1000 * t.tpot_p95_s, ",.1f")),
    ("peak KV", lambda t: _number(t.kv_cache_usage_peak, ".0%")),
    ("preempted", lambda t: _number(t.preemptions)),
    ("start s", lambda t: _number(t.start_s, ",.1f")),
)


def text(tuning: Tuning) -> str:
    """The table and its verdict."""
    lines = [
        f"{tuning.job}: {tuning.rows:,} of {tuning.rows_of_job:,} rows on {tuning.device}, {tuning.engine}",
        "",
        *table(tuning),
        "",
        verdict(tuning),
        *tuning.notes,
    ]
    return "\n".join(lines)


def table(tuning: Tuning) -> list[str]:
    """A line for each setting, below the names of the columns."""
    trials = tuning.trials
    shown = [(name, cell) for name, cell in _COLUMNS if any(cell(trial) != "-" for trial in trials)]
    rows = [[name for name, _ in shown], *([cell(trial) for _, cell in shown] for trial in trials)]
    left = len({trial.setting.variant for trial in trials}) > 1
    if left:
        names = ["variant", *(name_of(trial.setting.variant) or "the job's own" for trial in trials)]
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    remarks = ["", *(_remark(trial, tuning) for trial in trials)]
    return [f"{row}  {remark}".rstrip() for row, remark in zip(aligned(rows, int(left)), remarks, strict=True)]


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Cells in columns: the first `left` of them to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _remark(trial: Trial, tuning: Tuning) -> str:
    marks = []
    for knee in tuning.knees:
        marks += ["knee"] if trial.setting == knee.setting else []
        marks += ["fastest"] if trial.setting == knee.fastest and knee.fastest != knee.setting else []
    if trial.outcome != "measured":
        marks.append(f"{trial.outcome}: {_shortly(trial.reason)}")
    elif trial.reason:
        marks.append(trial.reason)
    if trial.total_tokens_per_s_range is not None:
        low, high = trial.total_tokens_per_s_range
        marks.append(f"{trial.runs} runs: {low:,.0f} to {high:,.0f}")
    return "; ".join(marks)


def verdict(tuning: Tuning) -> str:
    """What to use, and why not the fastest."""
    stopped = "Stopped: what follows is of what was measured until then. " if tuning.stopped else ""
    knee = tuning.own_knee
    if knee is None:
        return f"{stopped}No setting could be measured; the remarks say why."
    chosen = f"{stopped}Use {name_of(knee.setting)}: {knee.total_tokens_per_s:,.0f} total tokens/s"
    if knee.setting == knee.fastest:
        return f"{chosen}, the fastest, and no smaller setting is within {tuning.within:.0%} of it."
    return (
        f"{chosen}, the smallest setting within {tuning.within:.0%} of the fastest "
        f"({knee.fastest_total_tokens_per_s:,.0f} with {name_of(knee.fastest)})."
    )


def name_of(what: Setting | Variant) -> str:
    """A setting by what makes it different, such as `kv_cache_dtype fp8, max_num_seqs 32`."""
    variant = what if isinstance(what, Variant) else what.variant
    pairs: Sequence[tuple[str, str | int | None]] = [
        ("model", variant.model),
        ("kv_cache_dtype", variant.kv_cache_dtype),
    ]
    if isinstance(what, Setting):
        numbers = ("max_num_seqs", what.max_num_seqs), ("max_num_batched_tokens", what.max_num_batched_tokens)
        pairs = [*pairs, *numbers]
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in pairs if value
    )


def line(trial: Trial) -> str:
    """A trial in a few words, while others are still to come."""
    if trial.outcome != "measured":
        return f"{trial.outcome}: {_shortly(trial.reason)}"
    return (
        f"{_number(trial.rows_per_s, ',.2f')} rows/s, {_number(trial.total_tokens_per_s)} total tokens/s "
        f"(started in {_number(trial.start_s, ',.0f')} s, generated for {_number(trial.generating_s, ',.0f')} s)"
    )


def _number(value: float | None, form: str = ",.0f") -> str:
    return "-" if value is None else format(value, form)


def _shortly(reason: str | None) -> str:
    """The first line of what may be an engine's long last words; `--json` has all of them."""
    first = (reason or "").split("\n")[0]
    return first if len(first) <= _LONG else f"{first[: _LONG - 1]}…"
