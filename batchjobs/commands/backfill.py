"""`batchjobs backfill`: one job file for each date of a range whose results are missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchjobs.commands.arguments import AsJson, Force, JobFile, ThroughPrefect
from batchjobs.commands.running import carry_out

if TYPE_CHECKING:
    from batchjobs.nights import Night, Outcome
    from schemas.job import JobSpec
    from schemas.summary import Summary


def backfill(
    job_file: JobFile,
    first: Annotated[str, typer.Option("--from", metavar="YYYY-MM-DD", help="First date.", show_default=False)],
    last: Annotated[str, typer.Option("--to", metavar="YYYY-MM-DD", help="Last date.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the dates, and which would run.")] = False,
    submit: Annotated[
        bool, typer.Option("--submit", help="As one run on a Prefect worker, and return at once.")
    ] = False,
    deployment: Annotated[str, typer.Option(help="With --submit: the deployment that runs it.")] = "nightly/backfill",
    force: Force = False,
    prefect: ThroughPrefect = None,
    as_json: AsJson = False,
) -> None:
    """Run a job file with date variables for each date of a range whose output has no _SUCCESS, oldest first.

    A date that fails does not keep the next from running. Input that is missing is not waited for. The exit code is
    the worst of all dates: failed before refused before partial.
    """
    from batchjobs.dates import parse_date
    from batchjobs.nights import dated_nights, dates, in_turn, is_complete

    days = dates(parse_date(first, "--from"), parse_date(last, "--to"))
    nights = dated_nights(job_file, days)
    missing = [night for night in nights if not is_complete(night)]
    if dry_run:
        _list(nights, missing, as_json)
    elif not missing:
        typer.echo(f"All {len(nights)} dates are complete already; nothing was done.")
    elif submit:
        _submit(job_file, missing, len(nights), force, deployment)
    else:
        typer.echo(f"{len(missing)} of {len(nights)} dates are missing.", err=True)
        outcomes = in_turn(missing, lambda job: _told(job, force, prefect))
        _end(outcomes, len(missing), as_json)


def _told(job: JobSpec, force: bool, prefect: bool | None) -> Summary:
    typer.echo(f"{job.name} for {job.date}", err=True)
    return carry_out(job, force, prefect)


def _list(nights: Sequence[Night], missing: Sequence[Night], as_json: bool) -> None:
    listed = [
        {"date": str(night.day), "output": night.load().output.path, "would_run": night in missing} for night in nights
    ]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
        return
    _print([(str(one["date"]), "would run" if one["would_run"] else "complete", str(one["output"])) for one in listed])


def _submit(job_file: Path, missing: Sequence[Night], of: int, force: bool, deployment: str) -> None:
    from flows.submit import schedule_run

    parameters: dict[str, Any] = {
        "job_file": str(job_file.absolute()),
        "date": str(missing[0].day),
        "until": str(missing[-1].day),
    }
    submitted = schedule_run(deployment, {**parameters, "force": True} if force else parameters)
    typer.echo(f"Submitted {submitted.name} ({submitted.id}) for {len(missing)} of {of} dates\n{submitted.url or ''}")


def _end(outcomes: Sequence[Outcome], wanted: int, as_json: bool) -> None:
    from batchjobs.nights import table, worst
    from schemas.summary import EXIT_CODES

    if as_json:
        plain = [
            {
                "date": str(outcome.night.day),
                "state": outcome.state,
                "message": outcome.message,
                "summary": outcome.summary.model_dump(mode="json") if outcome.summary is not None else None,
            }
            for outcome in outcomes
        ]
        typer.echo(json.dumps(plain, indent=2))
    else:
        _print([("date", "state", "rows", "cost"), *table(outcomes)])
        for outcome in outcomes:
            if outcome.state != "completed":
                typer.echo(f"\n{outcome.night.day}: {outcome.message}")
        if len(outcomes) < wanted:
            typer.echo(f"\nStopped: {wanted - len(outcomes)} dates were not begun. The same command goes on.")
    raise typer.Exit(EXIT_CODES[worst(outcomes)])


def _print(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
