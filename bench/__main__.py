"""`python -m bench [NAME…]`: measure, print tables, keep the figures, and put them into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import commands, contests, echo, foresight, processes, tables
from bench.results import Results, Section

Measure = Callable[[Section, int | None, int | None], None]

SECTIONS: dict[str, Measure] = {
    "commands": commands.measure,
    "echo": echo.scale,
    "resume": echo.resume,
    "replicas": echo.replicas,
    "plan": foresight.plan,
    "capacity": foresight.capacity,
    "demo": processes.demo,
    **{name: partial(contests.measure, name) for name in contests.CONTENDERS},
    "processes": processes.measure,
    "memory": processes.memory,
    "kill": processes.kill,
}
PAGE = Path("docs/benchmarks.md")


def main() -> int:
    """Returns the exit code: 1 if something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"{', '.join(SECTIONS)}; default all")
    parser.add_argument("--rows", type=int, help="rows, instead of each benchmark's own number")
    parser.add_argument("--pairs", type=int, help="alternating rounds, instead of each benchmark's own number")
    parser.add_argument("--json", type=Path, help="keep the figures here; what is not measured now stays")
    parser.add_argument("--page", action="store_true", help=f"only put the figures of --json into {PAGE}")
    asked = parser.parse_args()
    if unknown := set(asked.names) - SECTIONS.keys():
        parser.error(f"found {', '.join(sorted(unknown))}; allowed: {', '.join(SECTIONS)}")
    if asked.page and asked.json is None:
        parser.error("--page needs --json, the figures to show")
    results = Results(asked.json)
    if asked.page:
        PAGE.write_text(tables.filled(PAGE.read_text(encoding="utf-8"), results.sections), encoding="utf-8")
        return 0
    names = asked.names or list(SECTIONS)
    for name in names:
        _measured(results, name, asked.rows, asked.pairs)
    print("\n" + tables.all_of(results.sections, names))
    return int(any(results.sections[name]["failures"] for name in names))


def _measured(results: Results, name: str, rows: int | None, rounds: int | None) -> None:
    """One section; whatever goes wrong in it is kept as its failure, and the next one goes on."""
    print(f"{name}:", flush=True)
    section = results.begin(name)
    try:
        SECTIONS[name](section, rows, rounds)
    except Exception as failure:
        traceback.print_exc()
        section.fail(f"{type(failure).__name__}: {failure}")


if __name__ == "__main__":
    sys.exit(main())
