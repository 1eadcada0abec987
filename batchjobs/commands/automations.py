"""The command that tells a Prefect server what to do by itself about our flow runs: `automations`."""

from __future__ import annotations

from typing import Annotated

import typer


def automations(
    webhook: Annotated[
        str | None,
        typer.Option(help="URL that is told of runs that end badly and of missed nights.", envvar="BATCHJOBS_WEBHOOK"),
    ] = None,
    max_resumes: Annotated[int, typer.Option(help="How often a run that crashed is begun again.", min=0)] = 3,
    heartbeat_within: Annotated[
        float,
        typer.Option(
            help="Seconds without a sign of life until a run is taken for dead: three heartbeats or more, which "
            "Prefect sends every 180 s (PREFECT_FLOWS_HEARTBEAT_FREQUENCY).",
            min=60,
        ),
    ] = 540.0,
    missed_after: Annotated[
        float, typer.Option(help="Hours without a completed run of a nightly deployment until it is missed.", min=0.01)
    ] = 26.0,
    remove: Annotated[bool, typer.Option("--remove", help="Delete what this command has made.")] = False,
) -> None:
    """Create or update the server's automations: notice dead runs, resume them, tell a webhook of what went wrong.

    Say it again after a change, after a new nightly deployment, and when the server has started: what is not asked for
    any more is removed, and runs that crashed unheard are resumed.
    """
    from flows.automations import Wanted, remove_automations, set_automations

    wanted = Wanted(heartbeat_within, max_resumes, webhook, missed_after * 3600)
    changes = remove_automations() if remove else set_automations(wanted)
    for name, change in changes.items():
        typer.echo(f"{change:<10}{name}")
    if not remove and webhook is None:
        typer.echo("Nobody is told of failures: there is no --webhook.", err=True)
