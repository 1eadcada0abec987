"""What a job will do: its files, shards, fingerprint and result schema; and whether an earlier plan still holds."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from batchjobs import __version__
from batchjobs.data.dataset import find_files, hive_columns, unify_schemas
from batchjobs.data.filesystem import open_url
from batchjobs.data.footers import read_footers
from batchjobs.data.reader import ShardReader
from batchjobs.data.shards import cut_shards
from batchjobs.errors import OutputError, SpecError
from batchjobs.fingerprint import differences, fingerprint, identity, model_fingerprint
from batchjobs.rows.prompts import Renderer, may_use
from batchjobs.rows.sampling import row_field_names
from schemas.job import JobSpec
from schemas.plan import InputFile, Plan, Shard, encode_schema
from schemas.records import RESULT_COLUMNS, result_schema

if TYPE_CHECKING:
    from batchjobs.data.predicate import Predicate

logger = logging.getLogger("batchjobs")

_SAMPLE_ROWS = 2048


@dataclass(frozen=True)
class Dataset:
    """The input as it is now."""

    fs: Any
    files: list[InputFile]
    schema: pa.Schema
    hive: list[str]  # columns that come from `key=value` folders
    shards: list[Shard]
    prompt_bytes: float = 0.0  # of the columns that the prompt uses, in the rows of the shards, as the footers say


def read_dataset(job: JobSpec) -> Dataset:
    """Find the files and read their footers; raises InputError. `job` has its references resolved."""
    fs, found = find_files(job.input.path, job.input.storage_options)
    footers = read_footers(fs, found, weigh=may_use(job.prompt))
    hive = hive_columns(found)
    schema = unify_schemas([(f.file.name, f.schema) for f in footers], hive)
    groups = [group for footer in footers for group in footer.row_groups]
    shards = cut_shards(groups, job.run.shard_rows, limit=job.input.limit)
    weighed = [size for footer in footers for size in footer.weighed]
    prompt_bytes = _of_first_rows([(rows, size) for (rows, _), size in zip(groups, weighed, strict=True)], shards)
    return Dataset(fs, [footer.file for footer in footers], schema, hive, shards, prompt_bytes)


def _of_first_rows(groups: list[tuple[int, int]], shards: list[Shard]) -> float:
    """Bytes of the rows that the shards have; of a row group that is cut by a limit, its share."""
    left, total = sum(shard.rows for shard in shards), 0.0
    for rows, size in groups:
        total += size * min(rows, left) / max(1, rows)
        left -= min(rows, left)
    return total


def make_plan(job: JobSpec, resolved: JobSpec, dataset: Dataset) -> Plan:
    """Check the spec against the dataset and plan. `job` keeps its references, so nothing secret is in the plan."""
    as_of = datetime.now(UTC)
    check_columns(resolved, dataset, as_of)
    kept = kept_columns(resolved, dataset.schema, dataset.hive)
    kept_schema = pa.schema([dataset.schema.field(name) for name in kept])
    settings, model = identity(job), model_fingerprint(resolved)
    return Plan(
        fingerprint=fingerprint(settings, model, dataset.files, as_of),
        identity=settings,
        model=model,
        created=as_of,
        as_of=as_of,
        versions=versions(),
        files=dataset.files,
        shards=dataset.shards,
        input_schema_ipc=encode_schema(dataset.schema),
        result_schema_ipc=encode_schema(result_schema(kept_schema, job.output.prefix)),
        kept_columns=kept,
    )


def versions() -> dict[str, str]:
    """Versions that matter to a result, of this process."""
    return {"batchjobs": __version__, **{name: version(name) for name in ("pyarrow", "polars", "transformers")}}


def warn_of_versions(what: str, earlier: set[str], now: str) -> None:
    """Another version goes on: its answers may differ in small ways, and each attempt's record says who gave them."""
    if earlier and earlier != {now}:
        logger.warning("This output was begun with %s %s and goes on with %s.", what, ", ".join(sorted(earlier)), now)


def check_columns(job: JobSpec, dataset: Dataset, as_of: datetime) -> None:
    """Every column that the spec names exists and fits; raises SpecError."""
    schema = dataset.schema
    Renderer(job, schema, as_of)
    row_field_names(job.sampling, schema)
    if job.input.id_column is not None and job.input.id_column not in schema.names:
        raise SpecError(f"input.id_column: found {job.input.id_column}; allowed: one of {', '.join(schema.names)}")
    predicate = predicate_of(job, schema)
    if predicate is not None:
        for batch in _sample(dataset, predicate.columns):
            predicate.check_row_wise(batch)


def predicate_of(job: JobSpec, schema: pa.Schema) -> Predicate | None:
    """The job's filter. Polars is imported only for jobs that have one: it is a third of a replica's imports."""
    if job.input.filter is None:
        return None
    from batchjobs.data.predicate import Predicate

    return Predicate(job.input.filter, schema)


def _sample(dataset: Dataset, columns: Sequence[str]) -> list[pa.RecordBatch]:
    if not dataset.shards:
        return []
    paths = [file.path for file in dataset.files]
    reader = ShardReader(dataset.fs, paths, dataset.files, dataset.schema, list(columns))
    return reader.read(Shard(0, min(dataset.shards[0].rows, _SAMPLE_ROWS)))[:1]


def kept_columns(job: JobSpec, schema: pa.Schema, hive: Sequence[str]) -> list[str]:
    """The input columns that every part carries; raises SpecError for unknown ones and for clashes."""
    wanted = schema.names if job.output.keep_columns is None else job.output.keep_columns
    for name in wanted:
        if name not in schema.names:
            raise SpecError(
                f"output.keep_columns: found {name}; allowed: columns of the dataset: {', '.join(schema.names)}"
            )
    # A reader of the output folder gets these from the path; in the file too, they would clash.
    in_path = {part.split("=", 1)[0] for part in job.output.path.split("/") if "=" in part}
    kept = [name for name in dict.fromkeys(wanted) if not (name in hive and name in in_path)]
    clashes = sorted(set(kept) & {job.output.prefix + name for name in RESULT_COLUMNS})
    if clashes:
        raise SpecError(
            f"output.prefix: the dataset has a column {clashes[0]} and so have the results; set output.prefix (such as "
            f"llm_), or leave {clashes[0]} out of output.keep_columns"
        )
    return kept


def compare(old: Plan, new: Plan, output: str, frozen_input: bool) -> list[str]:
    """Current paths of the planned files, if the job is still the same; raises OutputError with every difference."""
    now = {file.name: file for file in new.files}
    then = {file.name: file for file in old.files}
    arrived = [name for name in now if name not in then]
    found = differences(old.identity, new.identity) + differences(old.model, new.model, "model files")
    found += [f"input: {name} is gone" for name in then if name not in now]
    found += [f"input: {name} has changed" for name in then if name in now and not _same(then[name], now[name])]
    if not found and (frozen_input or not arrived):
        return [now[name].path for name in then]
    found += [f"input: {name} is new" for name in arrived]
    hint = "Use another output.path, or remove the output to start over."
    if arrived and len(found) == len(arrived):
        hint = "Run with --frozen-input to finish what was planned without the new files, or use another output.path."
    shown = found[:20] + ([f"… and {len(found) - 20} more"] if len(found) > 20 else [])
    raise OutputError(
        f"The output {output} belongs to another job:\n  " + "\n  ".join(shown) + f"\nNothing was changed. {hint}"
    )


def _same(then: InputFile, now: InputFile) -> bool:
    return then.model_copy(update={"path": now.path}) == now


def check_overlap(job: JobSpec, dataset: Dataset) -> None:
    """Refuse an output that is, contains or lies inside an input; raises OutputError."""
    fs, output = open_url(job.output.path, job.output.storage_options)
    if type(fs) is not type(dataset.fs):
        return
    output = _real(fs, output)
    inputs = [job.input.path] if isinstance(job.input.path, str) else job.input.path
    for path in inputs:
        place = _real(fs, str(dataset.fs._strip_protocol(path)))
        literal = place.split("*")[0].split("?")[0].split("[")[0]
        if output == place or output.startswith(place + "/") or (literal != place and output.startswith(literal)):
            raise OutputError(
                f"output.path: {job.output.path} is or lies inside the input {path}; use a folder outside of it."
            )
    for file in dataset.files:
        if _real(fs, file.path).startswith(output + "/"):
            raise OutputError(
                f"output.path: {job.output.path} contains the input file {file.path}; use another folder."
            )


def _real(fs: Any, path: str) -> str:
    """The path without links, where there are any."""
    return os.path.realpath(path) if isinstance(fs, LocalFileSystem) else path.rstrip("/")
