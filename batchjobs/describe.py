"""What a job would do, before it does anything: for `batchjobs plan`."""

from __future__ import annotations

from typing import Any

from batchjobs.planning.plan import check_overlap, make_plan, read_dataset
from batchjobs.settings.history import learnt_lengths
from batchjobs.settings.survey import decisions_for
from batchjobs.spec import resolve_references
from schemas.job import JobSpec
from schemas.summary import Decision


def describe(job: JobSpec) -> dict[str, Any]:
    """What a job would do, as plain values. Checks the spec against the dataset; writes nothing."""
    resolved = resolve_references(job)
    dataset = read_dataset(resolved)
    check_overlap(resolved, dataset)
    planned = make_plan(job, resolved, dataset)
    paths, shards = [file.path for file in planned.files], range(len(planned.shards))
    lengths = learnt_lengths(resolved)
    sizing = decisions_for(resolved, planned, dataset.fs, paths, shards, planned.rows, lengths)
    return {
        "job": job.name,
        "output": job.output.path,
        "rows": planned.rows,
        "files": len(planned.files),
        "shards": len(planned.shards),
        "input_columns": [f"{field.name}: {field.type}" for field in planned.input_schema],
        "result_columns": planned.result_schema.names,
        "sizing": {name: decision.model_dump() for name, decision in sizing.items()},
    }


def text(described: dict[str, Any]) -> str:
    """The same as aligned lines."""
    sizing = described["sizing"]
    pairs = [(name, _line(value)) for name, value in described.items() if name != "sizing"]
    pairs += [(name, Decision.model_validate(decision).text()) for name, decision in sizing.items()]
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs)


def _line(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
