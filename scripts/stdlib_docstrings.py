#!/usr/bin/env python3
"""Print the docstrings of Python's standard library, one JSON object per line.

Importing hundreds of modules has effects (signal handlers, terminal modes, patched functions), so this is meant to run
in a process of its own, as `build_data.py` does. It needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import ModuleType

SHORTEST = 41
"""Docstrings of fewer characters say too little to be summarised."""

NOT_IMPORTED = {
    "antigravity",  # opens a web browser
    "this",  # prints a poem
    "idlelib",  # an application: changes tkinter and the terminal
    "turtledemo",  # opens windows
    "test",  # the interpreter's own tests
    "lib2to3",  # may write a grammar cache beside its source
    "distutils",  # replaced by setuptools in some environments
    "encodings",  # the same three sentences a thousand times
}


@dataclass(frozen=True)
class Docstring:
    """One row of the data set; `chars` counts the characters of `text`."""

    id: str
    module: str
    kind: str
    text: str
    chars: int


def public_modules() -> Iterator[ModuleType]:
    """Import and yield each public module of the standard library, submodules included, in alphabetical order.

    What cannot be imported on this platform is left out.
    """
    for name in sorted(sys.stdlib_module_names - NOT_IMPORTED):
        if not name.startswith("_") and (module := import_quietly(name)):
            yield module
            yield from public_submodules(module)


def public_submodules(package: ModuleType) -> Iterator[ModuleType]:
    """Import and yield the public modules inside `package`, at any depth; nothing if it is no package."""
    for found in sorted(pkgutil.iter_modules(getattr(package, "__path__", ()), package.__name__ + ".")):
        last = found.name.rpartition(".")[2]
        if not last.startswith("_") and last not in {"test", "tests"} and (module := import_quietly(found.name)):
            yield module
            yield from public_submodules(module)


def import_quietly(name: str) -> ModuleType | None:
    """Import `name` without a word on the terminal; None if it cannot be imported here."""
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit):
            return None


def documented(module: ModuleType) -> Iterator[tuple[str, str, object]]:
    """Yield (id, kind, object) for `module` and the functions, classes and methods in it, dunder names left out."""
    yield module.__name__, "module", module
    for name, value in sorted(vars(module).items()):
        if name.startswith("__"):
            continue
        if inspect.isroutine(value):
            yield f"{module.__name__}.{name}", "function", value
        elif inspect.isclass(value):
            yield f"{module.__name__}.{name}", "class", value
            yield from methods(f"{module.__name__}.{name}", value)


def methods(prefix: str, owner: type) -> Iterator[tuple[str, str, object]]:
    """Yield (id, kind, object) for what `owner` defines itself, not what it inherits."""
    for name, value in sorted(vars(owner).items()):
        function = getattr(value, "__func__", value)  # class methods and static methods wrap theirs
        if not name.startswith("__") and inspect.isroutine(function):
            yield f"{prefix}.{name}", "method", function


def own_docstring(value: object) -> str:
    """Return the docstring of `value` itself, indentation removed; empty if it has none worth a row."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    text = inspect.cleandoc(text) if isinstance(text, str) else ""
    # A memory address (in the default of a generated signature) would make every run's data set another one.
    return "" if len(text) < SHORTEST or " at 0x" in text else text


def collect() -> list[Docstring]:
    """Return one docstring per documented object, by id.

    An object that several modules export is named after the one that defines it, else after the first in the alphabet.
    """
    by_object: dict[int, tuple[bool, Docstring]] = {}
    for module in list(public_modules()):  # all at once: importing one module may add names to another
        for name, kind, value in documented(module):
            if text := own_docstring(value):
                exported = getattr(value, "__module__", module.__name__) != module.__name__
                candidate = exported, Docstring(name, module.__name__, kind, text, len(text))
                best = by_object.get(id(value), candidate)
                by_object[id(value)] = min(best, candidate, key=lambda item: (item[0], item[1].id))
    rows = {row.id: row for _, row in by_object.values()}
    return [rows[key] for key in sorted(rows)]


def mixed(rows: list[Docstring]) -> list[Docstring]:
    """Return `rows` in an order that looks random and is always the same, so that any cut is a fair sample."""
    return sorted(rows, key=lambda row: hashlib.sha256(row.id.encode()).digest())


def main() -> None:
    """Print the rows."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    for row in mixed(collect()):
        print(json.dumps(asdict(row)))


if __name__ == "__main__":
    main()
