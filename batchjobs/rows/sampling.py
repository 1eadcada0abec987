"""Sampling parameters of one row: those of the spec, with the row's own values over them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from batchjobs.errors import SpecError
from schemas.request import REFUSED_SAMPLING, SamplingSpec

_OWN_KEYS = frozenset({"extra", "per_row_column", "from_model"})
_DECLARED = frozenset(SamplingSpec.model_fields) - _OWN_KEYS


class BadSampling(Exception):
    """A row's own sampling values are not allowed."""


def effective(spec: SamplingSpec) -> dict[str, Any]:
    """The parameters that are set, by vLLM's names, `extra` included."""
    declared = spec.model_dump(mode="json", exclude_none=True, exclude=set(_OWN_KEYS))
    return {**declared, **spec.extra}


def row_field_names(spec: SamplingSpec, schema: pa.Schema) -> list[str]:
    """Fields of the per-row column that only the engine knows; raises SpecError for a bad column or field."""
    column = spec.per_row_column
    if column is None:
        return []
    if column not in schema.names:
        raise SpecError(f"sampling.per_row_column: found {column}; allowed: one of {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not pa.types.is_struct(kind):
        raise SpecError(f"sampling.per_row_column: {column} is {kind}; allowed: a struct of sampling parameters")
    names = [kind.field(i).name for i in range(kind.num_fields)]
    for name in names:
        if name in REFUSED_SAMPLING or name in _OWN_KEYS:
            raise SpecError(f"sampling.per_row_column: found the field {name} in {column}; it cannot be set per row")
    return [name for name in names if name not in _DECLARED]


class RowSampling:
    """Merges and checks per-row values; equal values are checked once and share one dict."""

    def __init__(self, spec: SamplingSpec) -> None:
        self._spec = spec
        self.default = effective(spec)
        self._known: dict[str, dict[str, Any] | str] = {}

    def of(self, values: dict[str, Any] | None) -> dict[str, Any]:
        """Effective parameters of a row whose own values are `values` (nulls: as in the spec); raises BadSampling."""
        given = {name: value for name, value in (values or {}).items() if value is not None}
        if not given:
            return self.default
        key = repr(given)
        if key not in self._known:
            if len(self._known) > 10_000:  # values that differ in every row must not fill the memory
                self._known.clear()
            self._known[key] = self._merge(given)
        found = self._known[key]
        if isinstance(found, str):
            raise BadSampling(found)
        return found

    def _merge(self, given: dict[str, Any]) -> dict[str, Any] | str:
        if isinstance(given.get("structured_outputs"), dict):
            set_only = {k: v for k, v in given["structured_outputs"].items() if v is not None}
            given = {**given, "structured_outputs": set_only or None}
        extra = {name: value for name, value in given.items() if name not in _DECLARED}
        own = {name: value for name, value in given.items() if name in _DECLARED}
        base = self._spec.model_dump(exclude_none=True, exclude={"per_row_column"})
        try:
            return effective(SamplingSpec.model_validate({**base, **own, "extra": {**self._spec.extra, **extra}}))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in problem["loc"])
            return f"{name}: found {problem.get('input')!r}; {problem['msg']}"


def wants_json(sampling: dict[str, Any]) -> bool:
    """Whether the answer must parse as JSON."""
    return "json" in (sampling.get("structured_outputs") or {})


def deterministic(sampling: dict[str, Any]) -> bool:
    """Whether the request determines its answer: greedy, or with a seed. Unset is vLLM's 1, or whatever the model says.

    To vLLM a seed of -1 is none.
    """
    return sampling.get("temperature") == 0 or sampling.get("seed", -1) not in (None, -1)


def canonical(sampling: dict[str, Any]) -> bytes:
    """The parameters as bytes that are equal if and only if the parameters are."""
    return json.dumps(sampling, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
