"""`batchjobs try`: run the first few rows for real and show prompt and answer, leaving nothing behind."""

from __future__ import annotations

import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table

from batchjobs.errors import EngineFailed
from batchjobs.job import finish, prepare, run
from batchjobs.planning.plan import read_dataset
from batchjobs.planning.render import rendered
from batchjobs.rows.prompts import RowError
from batchjobs.spec import resolve_references
from batchjobs.storage.checkpoint import committed_shards, read_part
from batchjobs.supervision.progress import Reporter
from schemas.job import JobSpec, OutputSpec
from schemas.plan import Plan


def preview(job: JobSpec, rows: int, reporter: Reporter) -> list[dict[str, Any]]:
    """Prompt, answer and outcome of the first `rows` rows that the filter leaves of as many, through a real run."""
    with tempfile.TemporaryDirectory(prefix="batchjobs-try-") as folder:
        job = job.model_copy(
            update={
                "input": job.input.model_copy(
                    update={"limit": min(rows, job.input.limit or rows), "ready": None}  # of what is there already
                ),
                "output": OutputSpec(path=folder + "/out", keep_columns=[]),
                "run": job.run.model_copy(update={"deadline": None, "max_cost_usd": None}),  # those are of a whole run
            }
        )
        prepared = prepare(job)
        try:
            summary = finish(prepared, run(prepared, reporter), in_history=False)
            if summary.state == "failed":
                raise EngineFailed(f"No row was answered: {summary.message.split('. ')[0]}.")
            answers = [
                row
                for s in sorted(committed_shards(prepared.store))
                for row in read_part(prepared.store, s).to_pylist()
            ]
        finally:
            prepared.lock.release()
        prompts = _prompts(job, prepared.plan)
    return [{"row": a["row"], "prompt": prompts.get(a["row"]), **_answer(a)} for a in answers]


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    names = (
        "output",
        "reasoning",
        "status",
        "finish_reason",
        "warning",
        "error_code",
        "error",
        "prompt_tokens",
        "output_tokens",
    )
    return {name: row[name] for name in names}


def _prompts(job: JobSpec, plan: Plan) -> dict[int, str]:
    """The rendered prompt of each row, as the engine got it."""
    resolved = resolve_references(job)
    dataset = read_dataset(resolved)
    made = rendered(resolved, plan, dataset, dataset.shards)
    return {m.row: m.text or str(m.token_ids) for m in made if not isinstance(m, RowError)}


def side_by_side(pairs: list[dict[str, Any]]) -> str:
    """Prompt and answer in two columns, as wide as the terminal."""
    table = Table("row", "prompt", "answer", show_lines=True, expand=True)
    for pair in pairs:
        answer = pair["output"] if pair["status"] == "ok" else f"{pair['error_code']}: {pair['error']}"
        note = f"\n({pair['warning']})" if pair["warning"] else ""
        table.add_row(str(pair["row"]), pair["prompt"] or "", f"{answer}{note}", end_section=True)
    console = Console()
    with console.capture() as captured:
        console.print(table, markup=False)
    return captured.get()
