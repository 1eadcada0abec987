"""The row-wise SQL predicate of `input.filter`. Polars sees only the columns that it names, and returns a mask."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
import pyarrow as pa

from batchjobs.errors import SpecError

SAMPLE_ROWS = 256
_CLOCK = re.compile(r"\b(now\s*\(|current_(date|time|timestamp)\b)", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# A panic of Polars' own code is no Exception, and such as a decimal of 256 bits makes it panic.
_FAILURES = (Exception, pl.exceptions.PanicException)


_MANY_ROWS = frozenset({"Agg", "Over", "Window"})


class Predicate:
    """Decides row by row which rows of the dataset are wanted.

    Raises SpecError, naming `input.filter`, if the text is no SQL predicate over the columns of `schema`.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._expression = self._parse()
        self.columns: list[str] = list(dict.fromkeys(self._expression.meta.root_names()))
        self._check_columns(schema)
        if _CLOCK.search(_QUOTED.sub("", text)):
            raise self._refused("reads the clock, so a resumed job would pick other rows", "a date or time, as text")
        try:
            self._evaluate(_empty_batch(schema, self.columns))
        except _FAILURES as error:
            raise error if isinstance(error, SpecError) else self._refused(f"fails: {_first_line(error)}") from error

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows are wanted: null counts as false. `batch` may hold other columns as well.

        A null in the mask marks a row on which the predicate fails, such as text that is not UTF-8 or no number.
        """
        try:
            return self._evaluate(batch)
        except SpecError:
            raise
        except _FAILURES:
            if batch.num_rows <= 1:
                return pa.nulls(batch.num_rows, pa.bool_())
            half = batch.num_rows // 2
            return pa.concat_arrays([self.mask(batch.slice(0, half)), self.mask(batch.slice(half))])

    def check_row_wise(self, batch: pa.RecordBatch) -> None:
        """Evaluate `batch` whole, and up to 256 of its rows one by one.

        Raises SpecError if they differ, or if the predicate fails on every row.
        """
        whole = self.mask(batch).to_pylist()
        if whole and set(whole) == {None}:
            raise self._refused(f"fails on each of the first {len(whole)} rows")
        for row in range(0, batch.num_rows, -(-batch.num_rows // SAMPLE_ROWS) or 1):
            if self.mask(batch.slice(row, 1)).to_pylist() != [whole[row]]:
                raise self._refused(
                    "depends on other rows (a row is judged differently alone and among others)",
                    "predicates over one row, without aggregates and windows",
                )

    def _parse(self) -> pl.Expr:
        try:
            return pl.sql_expr(self._text)
        except _FAILURES as error:
            raise self._refused(f"is not understood: {_first_line(error)}") from error

    def _check_columns(self, schema: pa.Schema) -> None:
        if any(name.startswith("_POLARS_TMP") for name in self.columns) or self._expression.meta.has_multiple_outputs():
            raise self._refused("has a subquery or several results")
        for name in self.columns:
            if name not in schema.names:
                raise self._refused(f"names the unknown column {name}", f"one of {', '.join(schema.names)}")
        if _looks_at_other_rows(json.loads(self._expression.meta.serialize(format="json"))):
            raise self._refused("has an aggregate or a window", "predicates over one row")
        if not self.columns:
            raise self._refused("names no column", f"a predicate over {', '.join(schema.names)}")

    def _evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        table = pa.table({name: _plain(batch.column(name)) for name in self.columns})
        table.validate(full=True)  # Polars trusts that text is UTF-8 and would crash
        result = pl.from_arrow(table).select(self._expression).to_series()  # type: ignore[union-attr]
        if result.dtype not in (pl.Boolean, pl.Null):
            raise self._refused(f"gives {result.dtype}", "a predicate, which gives true or false")
        if len(result) != batch.num_rows:
            raise self._refused(f"gives {len(result)} values for {batch.num_rows} rows", "predicates over one row")
        return result.cast(pl.Boolean).fill_null(False).to_arrow()

    def _refused(self, found: str, allowed: str = "a row-wise SQL predicate, such as lang = 'en'") -> SpecError:
        return SpecError(f"input.filter: {self._text!r} {found}; allowed: {allowed}")


def _looks_at_other_rows(tree: Any) -> bool:
    """Whether Polars' own form of an expression has a node that needs more than the row."""
    if isinstance(tree, dict):
        return bool(_MANY_ROWS & tree.keys()) or any(map(_looks_at_other_rows, tree.values()))
    return isinstance(tree, list) and any(map(_looks_at_other_rows, tree))


def _plain(array: pa.Array) -> pa.Array:
    """The values themselves: one bad entry of a dictionary would spoil every row, and categories sort their own way."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _empty_batch(schema: pa.Schema, columns: list[str]) -> pa.RecordBatch:
    fields = [schema.field(name) for name in columns]
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in fields], schema=pa.schema(fields))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]
