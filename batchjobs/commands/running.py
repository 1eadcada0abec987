"""`batchjobs run`: here, or through the Prefect flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from batchjobs.commands.arguments import AsJson, Date, Force, JobFile, ThroughPrefect, job_in

if TYPE_CHECKING:
    from batchjobs.terminal import Terminal
    from schemas.job import JobSpec
    from schemas.summary import Summary


def run(
    job_file: JobFile,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N rows, as a job of its own: OUT-limit-N.", min=1)
    ] = None,
    date: Date = None,
    frozen_input: Annotated[
        bool, typer.Option(help="Finish what was planned, though files have arrived since.")
    ] = False,
    force: Force = False,
    prefect: ThroughPrefect = None,
    as_json: AsJson = False,
) -> None:
    """Run a job, or go on with it: plan, generate, summarise. Does only what is left."""
    from batchjobs.spec import limited

    job = job_in(job_file, date)
    summary = carry_out(limited(job, limit) if limit is not None else job, force, prefect, frozen_input)
    print_summary(summary, as_json)
    raise typer.Exit(summary.exit_code)


def carry_out(job: JobSpec, force: bool, prefect: bool | None, frozen_input: bool = False) -> Summary:
    """Run a job with a progress bar; `prefect` as the option of that name."""
    from batchjobs.job import run_job
    from batchjobs.terminal import Terminal

    with Terminal() as terminal:
        if prefect is False:
            return run_job(job, terminal, frozen_input, force)
        through_prefect = _through_prefect(job, frozen_input, force, terminal, prefect)
        return through_prefect or run_job(job, terminal, frozen_input, force)


def _through_prefect(
    job: JobSpec, frozen_input: bool, force: bool, terminal: Terminal, wanted: bool | None
) -> Summary | None:
    """The summary, or None when the job is to run without Prefect."""
    from flows.api import api_answers, api_configured

    if wanted is None and not api_configured():
        return None
    if api_configured() and not api_answers():
        typer.echo("The Prefect API that is configured does not answer; the job runs without it.", err=True)
        return None
    from flows.batch_inference import run_in_process

    return run_in_process(job, frozen_input, terminal, force)


def print_summary(summary: Summary, as_json: bool) -> None:
    """What a run came to, for people or for machines."""
    from batchjobs.reports.text import text

    typer.echo(summary.model_dump_json(indent=2) if as_json else text(summary))
