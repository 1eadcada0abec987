"""The head of a report: what ran, its key figures, and the five questions of an acceptance."""

from __future__ import annotations

from typing import Any

from batchjobs.accounts.units import plural
from batchjobs.reports.evidence import Evidence
from batchjobs.reports.lengths import Lengths
from batchjobs.reports.views import Fact, Tile
from batchjobs.reports.wording import UNKNOWN, count, instant, money, rate, ratio, seconds, share, size
from schemas.figures import Distribution
from schemas.plan import Plan
from schemas.summary import Previous, Summary

STATE_MARKS = {"completed": "good", "partial": "warn", "running": "busy", "failed": "bad", "refused": "bad"}


def what_ran(summary: Summary, plan: Plan, spec: dict[str, Any]) -> list[Fact]:
    """Job, model, data, engine, time and place."""
    return [
        Fact("Model", _model(plan, spec)),
        Fact("Data", _data(summary, plan, spec)),
        Fact("Engine", _engine(summary)),
        Fact("When", _when(summary)),
        Fact("Output", summary.output),
    ]


def _model(plan: Plan, spec: dict[str, Any]) -> str:
    model = spec.get("model") or {}
    if not model.get("name"):
        return "none: the echo engine answers without one"
    precision = [f"{key} {model[key]}" for key in ("dtype", "quantization", "kv_cache_dtype") if model.get(key)]
    revision = f"revision {model['revision']}" if model.get("revision") else "no revision pinned"
    files = f"{plural(len(plan.model), 'hash', 'hashes')} of its files in plan.json"
    return ", ".join([str(model["name"]), *precision, revision, files])


def _data(summary: Summary, plan: Plan, spec: dict[str, Any]) -> str:
    paths = (spec.get("input") or {}).get("path")
    where = f" from {paths if isinstance(paths, str) else plural(len(paths), 'path')}" if paths else ""
    told = f"{plural(plan.rows, 'row')} in {plural(len(plan.files), 'file')}{where}"
    filtered = summary.rows.filtered
    return f"{told}; the filter removed {plural(filtered, 'row')}" if filtered else told


def _engine(summary: Summary) -> str:
    engine, attempts = summary.engine, summary.attempts
    device = next((attempt.device for attempt in reversed(attempts) if attempt.device), None)
    name = f"{engine.kind} {engine.version or '(version not known)'}"
    replicas = f", {engine.replicas} replicas side by side" if engine.replicas > 1 else ""
    return f"{name} on {device or 'a device that was not recorded'}{replicas}"


def _when(summary: Summary) -> str:
    attempts = summary.attempts
    ends = [attempt.ended for attempt in attempts if attempt.ended is not None]
    if not attempts:
        return UNKNOWN
    span = f"{instant(min(a.started for a in attempts))} to {instant(max(ends, default=None))}"
    runs = "" if len(attempts) == 1 else f", {plural(len(attempts), 'attempt')} over all runs"
    return f"{span}{runs}"


def tiles(summary: Summary) -> list[Tile]:
    """Six figures that are read first."""
    rows, cost = summary.rows, summary.cost
    failed = ratio(rows.error, rows.total)
    speed = summary.rate.output_tokens_per_s
    price = "no price set" if cost.usd_total is None else ""
    return [
        Tile("Rows ok", count(rows.ok), f"of {count(rows.planned - rows.filtered)}"),
        Tile("Error rate", failed, plural(rows.error, "row"), "bad" if rows.error else ""),
        Tile("Output tokens/s", rate(speed), f"{rate(summary.rate.total_tokens_per_s)} with prompts" if speed else ""),
        Tile("Wall clock", seconds(summary.seconds.wall), "this run"),
        Tile("Cost", money(cost.usd_total), price or "all runs"),
        Tile("Cost per 1,000 rows", money(cost.usd_per_1k_rows), price or "that are ok"),
    ]


def acceptance(summary: Summary, spec: dict[str, Any], evidence: Evidence, lengths: Lengths) -> list[Fact]:
    """Quality, lengths, cache, failures, memory: one line each."""
    return [
        _quality(summary.previous, spec.get("baseline") or {}),
        Fact("Lengths", f"Prompts: {_percentiles(lengths.prompt)}. Answers: {_percentiles(lengths.output)}."),
        Fact("Prefix cache", _cache(summary)),
        _failures(summary),
        Fact("Peak memory", _memory(summary)),
    ]


def _quality(previous: Previous | None, baseline: dict[str, Any]) -> Fact:
    name = "Against the baseline"
    if previous is None:
        return Fact(name, "There is no earlier run of this job to compare with.")
    of = f" of {previous.date}" if previous.date is not None else ""
    with_what = f"the run{of} that ended {instant(previous.ended)}"
    caveat = "" if previous.same_settings else " Their settings differ, so the figures compare two different things."
    breaches = [change.breach for change in previous.changes if change.breach]
    if breaches:
        return Fact(name, f"Against {with_what}: {'; '.join(breaches)}.{caveat}", "bad")
    if not any(key.startswith("max_") for key in baseline):
        return Fact(name, f"Compared with {with_what} below; the job sets no thresholds to judge it by.{caveat}")
    return Fact(name, f"Within every threshold of the job, against {with_what}.{caveat}", "good")


def _percentiles(known: Distribution) -> str:
    if not known.count:
        return UNKNOWN
    return f"P50 {count(known.p50)}, P95 {count(known.p95)}, longest {count(known.max)} tokens"


def _cache(summary: Summary) -> str:
    hit, attempts = summary.engine.prefix_cache_hit_rate, summary.attempts
    if attempts and attempts[-1].settings.get("enable_prefix_caching") is False:
        return "Off (enable_prefix_caching: false)."
    start = "Cold at the start, as in every engine that has just started"
    if hit is None:
        return f"{start}; how much of it was used is not known."
    tokens = plural(summary.tokens.cached, "prompt token")
    return f"{start}; {share(hit)} of the tokens looked up in this run were found there ({tokens} over all runs)."


def _failures(summary: Summary) -> Fact:
    rows, health = summary.rows, summary.health
    if not rows.total:
        return Fact("Failed and cut", "No row is committed.")
    failed = f"{ratio(rows.error, rows.total)} of rows failed ({count(rows.error)})"
    cut = health.truncated if health.answers else sum(summary.warnings.values())
    answers = health.answers or rows.ok
    told = f"{failed}; {ratio(cut, answers)} of answers are cut ({count(cut)})."
    return Fact("Failed and cut", told, "warn" if rows.error else "")


def _memory(summary: Summary) -> str:
    memory = summary.memory
    host, device = size(memory.host_peak_bytes), size(memory.device_peak_bytes)
    kv, held = summary.engine.kv_cache_usage_peak, summary.engine.kv_cache_tokens
    of = f" of its {count(held)} tokens" if held and kv is not None else ""
    return f"Host {host}; GPU {device}; KV cache {share(kv)}{of}."
