"""The summary in words: plain text for a terminal, markdown for the Prefect UI."""

from __future__ import annotations

from batchjobs.accounts.units import duration, plural
from batchjobs.reports.spent import Line, dollars, foreseen, labels, previous, savings
from schemas.figures import Distribution
from schemas.summary import Attempt, Percentiles, Rate, Summary

_MOST_ATTEMPTS = 20
_MIB = 2**20

Section = tuple[str, list[Line]]


def text(summary: Summary) -> str:
    """The summary as aligned lines."""
    lines = [f"{_title(summary)}: {summary.state} (exit code {summary.exit_code}). {summary.message}"]
    for title, pairs in sections(summary):
        lines.append(f"\n{title}")
        width = max(len(name) for name, _ in pairs)
        lines += [f"  {name:<{width}}  {value}" for name, value in pairs]
    return "\n".join(lines)


def markdown(summary: Summary) -> str:
    """The summary as markdown tables."""
    lines = [f"# {_title(summary)}: {summary.state}", "", summary.message, "", f"Output: `{summary.output}`"]
    for title, pairs in sections(summary):
        lines += [
            "",
            f"| {title} | |",
            "| --- | --- |",
            *(f"| {_cell(name)} | {_cell(value)} |" for name, value in pairs),
        ]
    return "\n".join(lines)


def _title(summary: Summary) -> str:
    return summary.job if summary.date is None else f"{summary.job} for {summary.date}"


def _cell(text: str) -> str:
    """Markdown drops leading blanks, which mark what is part of the line above, and splits at bars and line ends."""
    indented = f"· {text.strip()}" if text.startswith("  ") else text
    return " ".join(indented.replace("|", "\\|").split("\n"))


def sections(summary: Summary) -> list[Section]:
    """Titles with their lines; what is not known is left out."""
    return [
        ("Rows", _rows(summary)),
        ("Tokens", _tokens(summary)),
        *([("Answers that may be wrong", health)] if (health := _health(summary)) else []),
        ("Time of this run", _seconds(summary)),
        *([("Engine-seconds of this run", by_label)] if (by_label := labels(summary)) else []),
        *([("Saved in this run", saved)] if (saved := savings(summary)) else []),
        ("Speed of this run", _speed(summary)),
        *([("Tokens per request of this run", lengths)] if (lengths := _lengths(summary)) else []),
        *([("Latency of this run", _latency(summary))] if summary.latency.queue_s.p50 is not None else []),
        ("Engine", _engine(summary)),
        *([("Settings that were decided", _sizing(summary))] if summary.sizing else []),
        *([("Attempts", attempts)] if (attempts := _attempts(summary)) else []),
        *([("Cost", dollars(summary))] if summary.cost.usd_total is not None else []),
        *([("Against the run before", previous(summary))] if summary.previous is not None else []),
    ]


def _rows(s: Summary) -> list[Line]:
    r = s.rows
    pairs = [
        ("planned", f"{r.planned:,} in {s.shards.total:,} shards, {s.shards.committed:,} committed"),
        ("ok", f"{r.ok:,}"),
        ("error", f"{r.error:,}"),
        *((f"  {code}", f"{count:,}") for code, count in s.errors.items()),
        *((f"  cut by {code}", f"{count:,} (ok, with a warning)") for code, count in s.warnings.items()),
    ]
    if r.filtered:
        pairs.append(("filtered", f"{r.filtered:,}"))
    done = f"{r.generated:,} generated, {r.reused:,} reused, {r.rejected:,} rejected"
    return [*pairs, ("this run", done + (f", {r.deduplicated:,} deduplicated" if r.deduplicated else ""))]


def _tokens(s: Summary) -> list[Line]:
    t = s.tokens
    pairs = [("prompt", f"{t.prompt:,} ({t.cached:,} from the prefix cache)"), ("output", f"{t.output:,}")]
    saved = ("saved", f"{t.saved_by_deduplication:,} by answering identical rows once")
    return [
        *pairs,
        *([("recomputed", f"{t.recomputed:,}")] if t.recomputed else []),
        *([saved] if t.saved_by_deduplication else []),
    ]


def _seconds(s: Summary) -> list[Line]:
    t = s.seconds
    return [
        ("wall clock", duration(t.wall)),
        ("plan", duration(t.plan)),
        *([("waiting", f"{duration(t.waiting)} for devices that another job held")] if t.waiting else []),
        ("engine start", duration(t.engine_start)),
        ("generating", f"{duration(t.generating)} (starved {duration(t.starved)}, tail {duration(t.tail)})"),
        ("finish", duration(t.finish)),
        *foreseen(s),
    ]


def _health(s: Summary) -> list[Line]:
    """One line if all is well; of no answers, nothing is said."""
    answers, counts = s.health.answers, s.health.model_dump(exclude={"answers"})
    if not answers:
        return []
    found = [(name, f"{count:,} of {answers:,} ({count / answers:.2%})") for name, count in counts.items() if count]
    return found or [("none", f"of {answers:,} answers")]


def _lengths(s: Summary) -> list[Line]:
    both = {"prompt": s.lengths.prompt_tokens, "output": s.lengths.output_tokens}
    return [(name, _distribution(lengths)) for name, lengths in both.items() if lengths.count]


def _distribution(d: Distribution) -> str:
    named = {"P50": d.p50, "P95": d.p95, "P99": d.p99, "longest": d.max}
    return ", ".join([f"mean {d.mean:,.1f}", *(f"{name} {value:,.0f}" for name, value in named.items())])


def _speed(s: Summary) -> list[Line]:
    order = f"{s.order.strategy} ({s.order.reason})" if s.order.strategy else ""
    pairs = [("generating", _rate(s.rate)), ("wall clock", _rate(s.rate_wall)), ("order", order)]
    return [(name, value) for name, value in pairs if value] or [("", "nothing was generated")]


def _rate(rate: Rate) -> str:
    named = {
        "requests/s": rate.requests_per_s,
        "output tokens/s": rate.output_tokens_per_s,
        "total tokens/s": rate.total_tokens_per_s,
    }
    return ", ".join(f"{value:,.1f} {name}" for name, value in named.items() if value is not None)


def _latency(s: Summary) -> list[Line]:
    known = {"queue": s.latency.queue_s, "first token (TTFT)": s.latency.ttft_s, "per token (TPOT)": s.latency.tpot_s}
    return [(name, _percentiles(p)) for name, p in known.items() if p.p50 is not None]


def _percentiles(p: Percentiles) -> str:
    named = {"P50": p.p50, "P95": p.p95, "P99": p.p99}
    return ", ".join(f"{name} {duration(value)}" for name, value in named.items() if value is not None)


def _engine(s: Summary) -> list[Line]:
    e = s.engine
    pairs = [("kind", f"{e.kind} {e.version or ''}".strip())]
    counts = (
        ("replicas", e.replicas if e.replicas > 1 else None),
        ("max_num_seqs", e.max_num_seqs),
        ("max_num_batched_tokens", e.max_num_batched_tokens),
        ("max_model_len", e.max_model_len),
        ("KV cache tokens", e.kv_cache_tokens),
        ("preemptions", e.preemptions),
    )
    pairs += [(name, f"{value:,}") for name, value in counts if value is not None]
    shares = (("peak KV use", e.kv_cache_usage_peak), ("prefix-cache hit rate", e.prefix_cache_hit_rate))
    pairs += [(name, f"{value:.1%}") for name, value in shares if value is not None]
    memory = (("peak memory", s.memory.host_peak_bytes), ("peak GPU memory", s.memory.device_peak_bytes))
    pairs += [(name, f"{value / _MIB:,.0f} MiB, one replica") for name, value in memory if value is not None]
    return [
        *pairs,
        ("held", f"{duration(s.engine_seconds.held)} in this run, {plural(len(s.attempts), 'attempt')} over all runs"),
    ]


def _sizing(s: Summary) -> list[Line]:
    return [(name, decision.text()) for name, decision in s.sizing.items()]


def _attempts(s: Summary) -> list[Line]:
    """Those that did not simply do their work: why they ended, and what was done about it."""
    return [
        (f"attempt {a.attempt}", "; ".join([f"{a.cause}: {a.failure}" if a.failure else str(a.cause), *_then(a)]))
        for a in s.attempts
        if a.failure or a.notes
    ][-_MOST_ATTEMPTS:]


def _then(a: Attempt) -> list[str]:
    return [*a.notes, *([f"next: {a.remedy}"] if a.remedy else [])]
