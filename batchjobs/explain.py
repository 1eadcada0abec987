"""`batchjobs explain`: one row, from its prompt to its answer or error."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from batchjobs.engines.base import Request
from batchjobs.errors import OutputError
from batchjobs.planning.plan import read_dataset
from batchjobs.planning.render import rendered
from batchjobs.retry import job_of
from batchjobs.rows.prompts import RowError
from batchjobs.spec import resolve_references
from batchjobs.storage.attempts import read_attempts
from batchjobs.storage.checkpoint import committed_shards, read_part
from batchjobs.storage.output import not_ours, read_plan
from batchjobs.storage.store import Store, open_store
from schemas.plan import Plan
from schemas.records import RESULT_COLUMNS


def explain_row(output: str, row: int) -> dict[str, Any]:
    """Where the row is, its prompt and tokens as rendered now, its result, and the attempt that gave it.

    Raises OutputError for a row that the dataset does not have. The result is None while its shard is open, and for a
    row that the filter removed.
    """
    store = open_store(output)
    plan = read_plan(store)
    if plan is None:
        raise not_ours(store)
    if not 0 <= row < plan.rows:
        raise OutputError(f"row {row}: the dataset of {output} has the rows 0 to {plan.rows - 1}")
    shard = bisect_right([s.first_row for s in plan.shards], row) - 1
    result = _result(store, plan, shard, row)
    attempts = {attempt.attempt: attempt for attempt in read_attempts(store)}
    attempt = attempts.get(result["attempt"]) if result else None
    return {
        "row": row,
        "file": _file_of(plan, row),
        "shard": shard,
        "committed": shard in committed_shards(store),
        **_request(output, plan, shard, row),
        "result": result,
        "attempt": attempt.model_dump(mode="json", exclude={"evidence"}) if attempt else None,
        "deaths": [a.failure for a in attempts.values() if row in a.quarantined],
    }


def _file_of(plan: Plan, row: int) -> str:
    for file in plan.files:
        if row < file.rows:
            return f"{file.name}, row {row} of it"
        row -= file.rows
    raise AssertionError("the plan's shards are made of its files' rows")


def _result(store: Store, plan: Plan, shard: int, row: int) -> dict[str, Any] | None:
    if shard not in committed_shards(store):
        return None
    prefix = plan.identity["output"]["prefix"]
    table = read_part(store, shard, columns=[prefix + name for name in RESULT_COLUMNS])
    rows = (dict(zip(RESULT_COLUMNS, values.values(), strict=True)) for values in table.to_pylist())
    return next((found for found in rows if found["row"] == row), None)


def _request(output: str, plan: Plan, shard: int, row: int) -> dict[str, Any]:
    job = resolve_references(job_of(output))
    for made in rendered(job, plan, read_dataset(job), [plan.shards[shard]]):
        if made.row == row and isinstance(made, Request):
            return {"prompt": made.text, "token_ids": made.token_ids, "sampling": made.sampling}
        if made.row == row and isinstance(made, RowError):
            return {"prompt": None, "token_ids": None, "sampling": None, "problem": f"{made.code}: {made.message}"}
    raise OutputError(f"row {row} is not in the input any more; it has changed since the job was planned")


def text(found: dict[str, Any]) -> str:
    """For people."""
    state = "committed" if found["committed"] else "still open"
    lines = [f"row {found['row']}: {found['file']}; shard {found['shard']} ({state})"]
    if found["token_ids"] is not None:
        lines += ["", f"prompt ({len(found['token_ids'])} tokens)", found["prompt"] or str(found["token_ids"])]
        lines += ["", f"sampling  {found['sampling']}"]
    else:
        lines += ["", f"no prompt: {found['problem']}"]
    if found["result"] is not None:
        lines += [
            "",
            "result",
            *(f"  {name:<14} {value}" for name, value in found["result"].items() if value is not None),
        ]
    if found["attempt"] is not None:
        attempt = found["attempt"]
        lines += ["", f"attempt {attempt['attempt']}: {attempt['started']} to {attempt['ended']}, {attempt['cause']}"]
    return "\n".join(lines)
