"""Tables of the runner alone, without a model."""

from __future__ import annotations

from typing import Any

from bench.engine_tables import Sections, table
from bench.statistics import paired, spread

_SECONDS, _MEMORY = 60, 2**30  # targets for a million rows
_PLAN_SECONDS = 15  # target for a plan of ten million rows
_LARGER = 4.4  # target for four times the rows: so many times the seconds
_SAME = 1.05  # of a peak that is sampled


def scale(sections: Sections) -> list[str]:
    """Every shape, and the resumed run."""
    records = sections.get("echo", {}).get("records", [])
    rows = [_shape(record, records) for record in records]
    rows += [_resumed(record) for record in sections.get("resume", {}).get("records", [])]
    head = (
        "dataset | rows | seconds | rows/s | first request after | largest process, MiB | again, when finished | "
        "target | met"
    )
    return table(head, rows)


def _shape(record: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    target, met = _target(record, records)
    return [record["shape"], f"{record['rows']:,}", f"{record['seconds']:.1f}",
            f"{record['rows'] / record['seconds']:,.0f}", f"{record['first_s']:.1f} s",
            f"{record['largest_bytes'] / 2**20:,.0f}", f"{record['repeated_s']:.1f} s", target, met]  # fmt: skip


def _target(record: dict[str, Any], records: list[dict[str, Any]]) -> tuple[str, str]:
    if record["rows"] == 1_000_000:
        met = record["seconds"] <= _SECONDS and record["largest_bytes"] <= _MEMORY
        return "≤ 60 s, each process ≤ 1 GiB", _yes(met)
    base = [r for r in records if 4 * r["rows"] == record["rows"] and r["shape"] == record["shape"]]
    if not base:
        return "—", "—"
    seconds = record["seconds"] / base[0]["seconds"]
    memory = record["largest_bytes"] / base[0]["largest_bytes"]
    met = seconds <= _LARGER and memory <= _SAME
    target = f"≤ {_LARGER} × the time of a quarter of the rows, no more memory"
    return target, f"{_yes(met)}: {seconds:.2f} × the time, {memory:.2f} × the memory"


def _yes(met: bool) -> str:
    return "yes" if met else "no"


def _resumed(record: dict[str, Any]) -> list[str]:
    redone = max(0, record["done_at_kill"] - record["reused"])
    title = f"{record['shape']}: killed at {record['done_at_kill']:,} rows and resumed; {redone:,} done again"
    return [title, f"{record['rows']:,}", f"{record['seconds']:.1f}", "—", f"{record['first_s']:.1f} s",
            f"{record['largest_bytes'] / 2**20:,.0f}", "—", "—", "—"]  # fmt: skip


def replicas(sections: Sections) -> list[str]:
    """Two against one."""
    records = sections.get("replicas", {}).get("records", [])
    if not records:
        return []
    found = spread(paired(records, "2", "1", lambda record: record["rows"] / record["generating_s"]))
    return table(
        "rows | two replicas / one, rows/s while generating | target | rounds",
        [[f"{records[0]['rows']:,}", found.text(), "≥ 1.9", str(found.count)]],
    )


def commands(sections: Sections) -> list[str]:
    """Medians."""
    records = sections.get("commands", {}).get("records", [])
    names = list(dict.fromkeys(record["contender"] for record in records))
    targets = {"--help": "≤ 0.5 s", "status": "≤ 0.5 s"}
    rows = []
    for name in names:
        seconds = spread(record["seconds"] for record in records if record["contender"] == name)
        rows.append([f"`batchjobs {name}`", seconds.text(), targets.get(name, "—")])
    return table("command | seconds, median (lowest … highest) | target", rows)


def plan(sections: Sections) -> list[str]:
    """A sampled plan of a big dataset."""
    records = sections.get("plan", {}).get("records", [])
    if not records:
        return []
    seconds = spread(record["seconds"] for record in records)
    memory = max(record["largest_bytes"] for record in records)
    met = seconds.high <= _PLAN_SECONDS and memory <= _MEMORY
    first = records[0]
    return table(
        "rows | files | looked at | seconds, median (lowest … highest) | most memory, MiB | target | met",
        [[f"{first['rows']:,}", f"{first['files']:,}", f"{first['looked_at']:,}", seconds.text(1),
          f"{memory / 2**20:,.0f}", "10,000,000 rows in ≤ 15 s and 1 GiB", _yes(met)]],
    )  # fmt: skip
