"""Arrow columns as Python values: which types fit a use, and what happens to a value that Python cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from batchjobs.errors import SpecError


class UnreadableValue(Exception):
    """A value that has no Python form: text that is not UTF-8, a date beyond the year 9999."""


def python_rows(batch: pa.RecordBatch, columns: list[str]) -> list[dict[str, Any] | UnreadableValue]:
    """Each row as a dict of Python values; a row with a value that cannot be read is an UnreadableValue."""
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    try:
        lists = [batch.column(name).to_pylist() for name in columns]
    except Exception:  # text that is not UTF-8, a date beyond year 9999: find out which rows
        return [_python_row(batch, columns, i) for i in range(batch.num_rows)]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def _python_row(batch: pa.RecordBatch, columns: list[str], index: int) -> dict[str, Any] | UnreadableValue:
    row = {}
    for name in columns:
        try:
            row[name] = batch.column(name)[index].as_py()
        except Exception as error:
            return UnreadableValue(f"the value of column {name} cannot be read: {error}")
    return row


def filtered(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows of a batch where the mask is true, whatever the types of its columns."""
    return pa.RecordBatch.from_arrays([_filtered(column, mask) for column in batch.columns], schema=batch.schema)


def _filtered(column: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    try:
        return column.filter(mask)
    except pa.ArrowNotImplementedError:  # string_view and binary_view, alone or nested, have no kernel yet
        wanted = [i for i, keep in enumerate(mask.to_pylist()) if keep]
        pieces = [column.slice(i, 1) for i in wanted]
        return pa.concat_arrays(pieces) if pieces else column.slice(0, 0)


def require_column(schema: pa.Schema, key: str, name: str, fits: Callable[[pa.DataType], bool], wanted: str) -> str:
    """`name`, if the schema has it with a fitting type; raises SpecError, naming `key`, if not."""
    if name not in schema.names:
        raise SpecError(f"{key}: found {name}; allowed: one of the columns {', '.join(schema.names)}")
    kind = schema.field(name).type
    if not fits(kind):
        raise SpecError(f"{key}: the column {name} is {kind}; allowed: {wanted}")
    return name


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this Arrow type are str in Python (an all-null column counts)."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this Arrow type are lists in Python."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
    )


def is_messages(kind: pa.DataType) -> bool:
    """Whether this Arrow type is a list of structs with role and content."""
    if not is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return {"role", "content"} <= {kind.value_type.field(i).name for i in range(kind.value_type.num_fields)}
