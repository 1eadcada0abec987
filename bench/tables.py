"""The tables of docs/benchmarks.md, made from the figures: nothing is copied by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from bench import engine_tables, runner_tables
from bench.engine_tables import Sections

Table = Callable[[Sections], list[str]]

# name: which sections it shows, and how
TABLES: dict[str, tuple[tuple[str, ...], Table]] = {
    "one_engine": (engine_tables.AGAINST_OURS, engine_tables.ratios),
    "inside": (engine_tables.AGAINST_OURS, engine_tables.inside),
    "slots": (("slots",), engine_tables.slots),
    "demo": (("demo",), engine_tables.demo),
    "processes": (("processes",), engine_tables.processes),
    "memory": (("memory",), engine_tables.memory),
    "kill": (("kill",), engine_tables.kill),
    "echo": (("echo", "resume"), runner_tables.scale),
    "replicas": (("replicas",), runner_tables.replicas),
    "commands": (("commands",), runner_tables.commands),
    "plan": (("plan",), runner_tables.plan),
    "capacity": (("capacity",), engine_tables.capacity),
}
_PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def all_of(sections: Sections, names: Iterable[str]) -> str:
    """Every table that shows one of the sections."""
    asked = set(names)
    return "\n\n".join(_table(name, sections) for name, (shown, _) in TABLES.items() if asked & set(shown))


def filled(page: str, sections: Sections) -> str:
    """The page with its tables replaced; raises KeyError for a table that is not known."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{_table(place[2], sections)}\n\n{place[3]}", page)


def _table(name: str, sections: Sections) -> str:
    shown, make = TABLES[name]
    command = f"`python -m bench {' '.join(shown)}`"
    measured = {s: sections[s] for s in shown if s in sections}
    if not measured:
        return f"Not measured yet: {command}."
    lines = make({s: found for s, found in measured.items() if found["records"]})
    return "\n".join([*lines, "", _how(command, measured), *_missing(measured)])


def _how(command: str, measured: Sections) -> str:
    seconds = sum(section["seconds"] for section in measured.values())
    machine: dict[str, Any] = next(iter(measured.values()))["machine"]
    return (
        f"{command}: {seconds / 60:.1f} minutes, begun {min(section['began'] for section in measured.values())}, on "
        f"{machine['cores']} cores ({machine['architecture']}, {machine['memory_gib']} GiB) with a load of "
        f"{machine['load']} before."
    )


def _missing(measured: Sections) -> list[str]:
    found = [
        f"{words}: {text.splitlines()[0]}"
        for section in measured.values()
        for key, words in (("skipped", "Left out"), ("failures", "Could not be measured"))
        for text in section[key]
    ]
    return [line for text in dict.fromkeys(found) for line in ("", text)]
