"""Proof of completeness: re-read every part, without a GPU, and hold it against the plan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from batchjobs.storage.checkpoint import Commit, committed_shards, part_name, read_commit, read_part
from batchjobs.storage.output import not_ours, read_plan
from batchjobs.storage.store import Store, open_store
from schemas.plan import Plan
from schemas.records import Status

_MOST = 20  # discrepancies shown


class Proof(BaseModel):
    """What was read and what was found wrong."""

    output: str
    complete: bool
    shards: int
    rows: int
    ok: int
    errors: int
    ids_checked: bool  # False without `input.id_column`, or if it is not kept
    discrepancies: list[str]

    def text(self) -> str:
        """For people."""
        if self.complete:
            ids = ", ids unique" if self.ids_checked else ""
            return (
                f"{self.output}: complete. {self.shards:,} shards, {self.rows:,} rows ({self.ok:,} ok, {self.errors:,} "
                f"errors): every planned shard once, row numbers, counts, checksums and schema agree{ids}."
            )
        return f"{self.output}: not complete:\n  " + "\n  ".join(self.discrepancies)


def verify_output(output: str) -> Proof:
    """Read every part; raises OutputError if there is no plan to hold the parts against."""
    store = open_store(output)
    plan = read_plan(store)
    if plan is None:
        raise not_ours(store)
    checker = _Checker(store, plan)
    found = list(islice(checker.discrepancies(), _MOST))
    return Proof(
        output=output,
        complete=not found,
        shards=checker.shards,
        rows=checker.rows,
        ok=checker.ok,
        errors=checker.rows - checker.ok,
        ids_checked=checker.id_column is not None,
        discrepancies=found,
    )


def _has_ids(plan: Plan, column: str) -> bool:
    """Whether Polars can hash the column's values: numbers, text, dates; not lists, structs or maps."""
    kind = plan.result_schema.field(column).type
    return not (pa.types.is_nested(kind) or pa.types.is_decimal(kind))


class _Checker:
    def __init__(self, store: Store, plan: Plan) -> None:
        self.shards = self.rows = self.ok = 0
        self._store, self._plan = store, plan
        self._prefix: str = plan.identity["output"]["prefix"]
        wanted = plan.identity["input"]["id_column"]
        self.id_column: str | None = wanted if wanted in plan.kept_columns and _has_ids(plan, wanted) else None
        self._id_hashes: list[pl.Series] = []

    def discrepancies(self) -> Iterator[str]:
        present = committed_shards(self._store)
        parts = {part_name(shard) for shard in present}
        for name in self._store.names():
            if name not in parts and not name.startswith(("_", ".")):
                yield f"{name} is no part, but readers of the folder would read it"
        for extra in sorted(present - set(range(len(self._plan.shards)))):
            yield f"{part_name(extra)} is no shard of the plan"
        for index in range(len(self._plan.shards)):
            if index in present:
                yield from self._part(index)
            else:
                yield f"shard {index} has no part ({part_name(index)})"
        yield from self._repeated_ids()

    def _part(self, index: int) -> Iterator[str]:
        name = part_name(index)
        try:
            commit = read_commit(self._store, index)
            table = read_part(self._store, index, verify=True)
        except (OSError, ValueError) as error:
            yield f"{name} cannot be read: {error}"
            return
        self.shards += 1
        self.rows += table.num_rows
        yield from (f"{name}: {problem}" for problem in self._problems(index, commit, table))
        if self.id_column is not None:
            self._id_hashes.append(pl.Series(table.column(self.id_column)).hash())

    def _problems(self, index: int, commit: Commit, table: pa.Table) -> Iterator[str]:
        plan, shard = self._plan, self._plan.shards[index]
        if commit.fingerprint != plan.fingerprint:
            yield "it belongs to another job (its fingerprint is not the plan's)"
        if commit.shard != index:
            yield f"it is the part of shard {commit.shard}"
        if not table.schema.remove_metadata().equals(plan.result_schema.remove_metadata()):
            yield "its schema is not the plan's"
            return
        if commit.rows != table.num_rows or commit.rows + commit.filtered != shard.rows:
            counts = f"committed {commit.rows} and {commit.filtered} filtered, planned {shard.rows}"
            yield f"it has {table.num_rows} rows; {counts}"
        yield from self._row_problems(shard.first_row, shard.rows, table)
        ok = pc.sum(pc.equal(table.column(self._prefix + "status"), Status.OK)).as_py() or 0
        self.ok += ok
        if ok != commit.ok:
            yield f"it has {ok} rows with status ok; committed were {commit.ok}"

    def _row_problems(self, first: int, count: int, table: pa.Table) -> Iterator[str]:
        rows = pl.Series(table.column(self._prefix + "row"))
        if rows.len() == 0:
            return
        if rows.null_count() or not bool((rows.diff().drop_nulls() > 0).all()):
            yield "its row numbers do not rise"
        elif rows[0] < first or rows[-1] >= first + count:
            yield f"its row numbers {rows[0]}–{rows[-1]} are not within {first}–{first + count - 1}"

    def _repeated_ids(self) -> Iterator[str]:
        """Ids that occur twice. Hashes (8 bytes a row) find the candidates, the values decide."""
        if not self._id_hashes or self.id_column is None:
            return
        hashes = pl.concat(self._id_hashes)
        suspects = hashes.filter(hashes.is_duplicated()).unique()
        if suspects.is_empty():
            return
        seen: dict[object, int] = {}
        for index in sorted(committed_shards(self._store)):
            part = read_part(self._store, index, columns=[self.id_column, self._prefix + "row"])
            ids = pl.Series(part.column(self.id_column))
            candidates = ids.hash().is_in(suspects.implode())
            rows = pl.Series(part.column(self._prefix + "row")).filter(candidates)
            for value, row in zip(ids.filter(candidates), rows, strict=True):
                if value in seen:
                    yield f"id {value!r} of row {row} is also the id of row {seen[value]}"
                seen.setdefault(value, row)
