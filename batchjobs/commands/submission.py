"""The commands that talk to Prefect: `submit`, `cancel`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from batchjobs.commands.arguments import AsJson, Date, Force, JobFile, job_in

if TYPE_CHECKING:
    from flows.submit import SubmittedRun
    from flows.watch import End
    from schemas.job import JobSpec

_INTERRUPTED = 130  # as a shell says it of Ctrl-C


def submit(
    job_file: JobFile,
    deployment: Annotated[str, typer.Option(help="Prefect deployment that runs the job.")] = "batch-inference/adhoc",
    tag: Annotated[list[str] | None, typer.Option(help="Tag of the flow run; may be repeated.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow it to its end, and exit with the job's exit code.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan/--no-plan", help="Look at the input first; not if only the worker can read it.")
    ] = True,
    date: Date = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Start an ad-hoc run of a job on a Prefect worker. Refused while a run with the same output is not over."""
    from flows.submit import submit as submit_job

    job = job_in(job_file, date)
    if plan:
        _show_plan(job)
    submitted = submit_job(job, deployment, tag or [], force)
    if not as_json:
        typer.echo(f"Submitted {submitted.name} ({submitted.id})\n{submitted.url or ''}")
    if submitted.warning is not None:
        typer.echo(submitted.warning, err=True)
    end = _watched(submitted) if watch else None
    if as_json:
        known = {"id": str(submitted.id), "name": submitted.name, "url": submitted.url}
        ended = {"state": end.state, "message": end.message, "exit_code": end.exit_code} if end is not None else {}
        typer.echo(json.dumps({**known, **ended}, indent=2))
    elif end is not None:
        typer.echo(f"{submitted.name}: {end.state} (exit code {end.exit_code}). {end.message}")
    raise typer.Exit(end.exit_code if end is not None else 0)


def _show_plan(job: JobSpec) -> None:
    """What is to be done, on standard error; raises Refused for what cannot be."""
    from batchjobs.describe import describe
    from batchjobs.errors import InputError, InputMissing, SpecError
    from batchjobs.reports.plan import brief
    from batchjobs.spec import resolve_references

    try:
        resolve_references(job)
    except SpecError as unset:  # the worker's environment is not this one
        typer.echo(f"Not planned here, and sent as it is: {unset}", err=True)
        return
    try:
        typer.echo(brief(describe(job)), err=True)
    except InputMissing as late:
        if job.input.ready is None or job.input.ready.wait is None:
            raise InputMissing(f"{late}\nIf only the worker can read the input: --no-plan.") from late
        typer.echo(f"{late} The run waits for it (input.ready.wait is {job.input.ready.wait}).", err=True)
    except InputError as problem:
        raise InputError(f"{problem}\nIf only the worker can read the input: --no-plan.") from problem


def _watched(submitted: SubmittedRun) -> End:
    from batchjobs.terminal import Lines
    from flows.watch import watch

    lines = Lines()
    try:
        return watch(submitted.id, lines)
    except KeyboardInterrupt:
        lines.end()
        typer.echo(f"Not watched any more; the job goes on. To end it: batchjobs cancel {submitted.id}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        lines.end()


def cancel(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|OUT|JOB", help="Id or name of a flow run, output folder, or job file.", show_default=False
        ),
    ],
    wait: Annotated[bool, typer.Option(help="Until the run is over and its processes are gone.")] = True,
) -> None:
    """Stop a run: what is running finishes within the drain time, what is committed stays, and it can go on later."""
    from flows.cancel import cancel as cancel_run
    from flows.cancel import find

    target = find(run)
    typer.echo(cancel_run(target) if wait else cancel_run(target, wait_s=0))
