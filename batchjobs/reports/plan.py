"""What a job would do, in words: the text of `batchjobs plan`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from textwrap import wrap

from batchjobs.accounts.units import dollars, duration, plural
from batchjobs.reports.wording import UNKNOWN, size
from schemas.description import Alternative, Description
from schemas.figures import Distribution, Interval

_BAR = 40  # characters of the longest
_WIDTH = 100  # of a line that is not a table

Pairs = list[tuple[str, str]]


def text(found: Description) -> str:
    """All of it as aligned lines; what is not known comes last, with the reasons."""
    lines = [_head(found)]
    for title, body in _sections(found):
        lines += ["", title, *(f"  {line}".rstrip() for line in body)]
    return "\n".join(lines)


def brief(found: Description) -> str:
    """How much there is to do, what is wrong with it, and how long it takes: a few lines."""
    wrong = _problems(found) if found.problems.looked_at else ["none"]
    problems = [f"problems in {_looked_at(found)}:", *(f"  {line}" for line in wrong)] if wrong != ["none"] else []
    return "\n".join([_head(found), *problems, *_estimate(found)])


def _head(found: Description) -> str:
    rows, files = plural(found.rows, "row"), plural(found.files, "file")
    return f"{found.job}: {rows} in {files}, {plural(found.shards, 'shard')}, to {found.output}"


def _sections(found: Description) -> Iterator[tuple[str, list[str]]]:
    yield "Columns", _aligned([("input", ", ".join(found.input_columns)), ("results", ", ".join(found.result_columns))])
    if found.problems.looked_at:
        yield f"Problems in {_looked_at(found)}", _problems(found)
    if found.prompt_tokens.count:
        yield "Tokens", [*_tokens(found), "", *_histogram(found.prompt_tokens)]
    if found.capacity.device is not None:
        yield f"Capacity of one engine on {found.capacity.device}", _capacity(found)
    yield "Time and money", _estimate(found)
    if found.sizing:
        yield "Settings that the job leaves open", _aligned([(n, d.text()) for n, d in found.sizing.items()])
    unknown = [(key, why) for key, why in found.unknown.items() if key != "estimate.seconds"]  # its basis says it
    if unknown:
        yield "Not known", _aligned(unknown)


def _looked_at(found: Description) -> str:
    looked = found.problems.looked_at
    return f"all {looked:,} rows" if looked >= found.rows else f"{looked:,} sampled rows"


def _aligned(pairs: Pairs) -> list[str]:
    width = max((len(name) for name, _ in pairs), default=0)
    return [line for name, value in pairs for line in _wrapped(f"{name:<{width}}  ", value)]


def _wrapped(head: str, value: str) -> list[str]:
    return wrap(
        " ".join(value.split()), max(_WIDTH, len(head) + 40), initial_indent=head, subsequent_indent=" " * len(head)
    ) or [head]


def _problems(found: Description) -> list[str]:
    p = found.problems
    counts = {"null": p.null, "empty": p.empty, "too long": p.too_long, "duplicate": p.duplicate, **p.other}
    pairs = [(name, f"{number:,}") for name, number in counts.items() if number]
    if p.filtered:
        pairs.append(("filtered", f"{p.filtered:,} (no problem: they get no output row)"))
    if p.duplicate_ids is not None:
        pairs.append(("duplicate ids", f"{p.duplicate_ids:,}"))
    examples = [f"row {example.row:,}: {example.problem}: {example.text}" for example in p.examples]
    return [*(_aligned(pairs) or ["none"]), *(line[:_WIDTH] for line in examples)]


def _tokens(found: Description) -> list[str]:
    pairs = [("of a prompt", _distribution(found.prompt_tokens))]
    if found.output_tokens is not None and found.output_tokens.count:
        pairs.append(("of an answer, expected", _distribution(found.output_tokens)))
    if found.shared_prefix is not None:
        pairs.append(("shared beginnings", f"{found.shared_prefix:.1%} of the prompt tokens of the rows looked at"))
    totals = (("all prompts", found.totals.prompt_tokens), ("all answers", found.totals.output_tokens))
    pairs += [(name, _tokens_between(interval)) for name, interval in totals if interval is not None]
    return _aligned([*pairs, ("", found.totals.method)])


def _distribution(d: Distribution) -> str:
    named = {"mean": d.mean, "P50": d.p50, "P95": d.p95, "P99": d.p99, "longest": d.max}
    return ", ".join(f"{name} {value:,.0f}" for name, value in named.items() if value is not None)


def _tokens_between(interval: Interval) -> str:
    if interval.low == interval.high:
        return f"{interval.expected:,.0f}"
    return f"{interval.expected:,.0f} ({interval.low:,.0f} to {interval.high:,.0f})"


def _histogram(found: Distribution) -> list[str]:
    """Bars, one for each power of two of the length."""
    bars: dict[int, int] = {}
    for up_to, number in found.histogram:
        bars[up_to.bit_length()] = bars.get(up_to.bit_length(), 0) + number
    most = max(bars.values())
    edges = {bits: f"{1 << bits >> 1:,} to {(1 << bits) - 1:,}" for bits in bars}
    width = max(len(edge) for edge in edges.values())
    return [f"{edges[bits]:>{width}}  {'█' * max(1, _BAR * n // most)} {n:,}" for bits, n in sorted(bars.items())]


def _capacity(found: Description) -> list[str]:
    c = found.capacity
    pairs = [
        ("memory", size(c.device_memory_bytes)),
        ("weights", size(c.weights_bytes)),
        ("KV cache", c.how),
        ("sequences at P95", _number(c.max_concurrent_sequences)),
        *((f"recommended {name}", decision.text()) for name, decision in c.recommended.items()),
    ]
    if c.advice is not None:
        pairs.append(("advice", c.advice))
    return [*_aligned(pairs), "", *_table(c.alternatives)]


def _table(alternatives: Iterable[Alternative]) -> list[str]:
    rows = [("change", "weights", "KV bytes a token", "KV tokens", "sequences at P95", "fits")]
    for a in alternatives:
        fits = UNKNOWN if a.fits is None else "yes" if a.fits else "no"
        counts = (a.kv_bytes_per_token, a.kv_cache_tokens, a.max_concurrent_sequences)
        per_token, tokens, sequences = (_number(count) for count in counts)
        rows.append((a.change, size(a.weights_bytes), per_token, tokens, sequences, fits))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _number(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _estimate(found: Description) -> list[str]:
    e = found.estimate
    title = "at the very least" if e.is_bound else "expected"
    pairs: Pairs = []
    if e.seconds is not None:
        pairs.append(("time, " + title, _between(e.seconds, duration, e.is_bound)))
    if e.usd is not None:
        pairs.append(("cost, " + title, _between(e.usd, dollars, e.is_bound)))
    return _aligned([*pairs, ("basis", e.basis)])


def _between(interval: Interval, words: Callable[[float], str], is_bound: bool) -> str:
    if is_bound:
        return f"{words(interval.low)}; more likely {words(interval.expected)}, and up to {words(interval.high)}"
    return f"{words(interval.expected)} ({words(interval.low)} to {words(interval.high)})"
