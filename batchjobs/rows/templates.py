"""Jinja templates over a row's columns, sandboxed; an undefined variable or a printed null is an error of the row."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchjobs.errors import SpecError


class NullValue(Exception):
    """The template printed a null. `None` in a prompt is never meant; `{{ x or '' }}` says so where it is."""


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise NullValue("the template printed a null value")
    return value


def names_in(text: str) -> set[str]:
    """Names that a template uses and does not define itself; none if its syntax is wrong."""
    try:
        return meta.find_undeclared_variables(ImmutableSandboxedEnvironment().parse(text))
    except TemplateSyntaxError:
        return set()


class RowTemplate:
    """A template over the columns of a row. `row` is the row as a mapping, `as_of` the plan's instant."""

    def __init__(self, text: str, key: str, columns: Collection[str], as_of: datetime) -> None:
        """Raises SpecError, naming `key`, for bad syntax or a variable that is no column."""
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=_refuse_null)
        environment.globals |= {"as_of": as_of, "strftime_now": as_of.strftime}
        for name in environment.globals.keys() & set(columns):
            del environment.globals[name]  # the row's value comes first
        try:
            tree = environment.parse(text)
        except TemplateSyntaxError as error:
            raise SpecError(f"{key}: found a template error in line {error.lineno}: {error.message}") from error
        names = meta.find_undeclared_variables(tree)
        if "self" in columns and any(node.name == "self" for node in tree.find_all(nodes.Name)):
            raise SpecError(f"{key}: found {{{{ self }}}}, which is Jinja's own; allowed: row['self'] for the column")
        unknown = sorted(names - set(columns) - {"row"} - environment.globals.keys())
        if unknown:
            raise SpecError(f"{key}: found {{{{ {unknown[0]} }}}}; allowed: the columns {', '.join(columns)}")
        self._whole_row = "row" in names and "row" not in columns
        self.columns = [name for name in columns if self._whole_row or name in names]
        self._template = environment.from_string(text)

    def render(self, values: dict[str, Any]) -> str:
        """The text for one row. Raises NullValue, and whatever the template raises."""
        return self._template.render(values, row=values) if self._whole_row else self._template.render(values)
