"""The command `deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NIGHTLY = "jobs/nightly.yaml"


def deploy(
    job_file: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Nightly job file, relative to the folder; may be repeated. Default: {NIGHTLY}, if there is one."
        ),
    ] = None,
    cron: Annotated[str, typer.Option(help="When the nights begin.")] = "0 2 * * *",
    timezone: Annotated[str, typer.Option(help="Whose clock that is.")] = "Europe/Berlin",
    pool: Annotated[str, typer.Option(help="Prefect work pool; made as a process pool if it does not exist.")] = "gpu",
    folder: Annotated[Path, typer.Option(help="Where the flows will run.")] = Path(),
) -> None:
    """Make the Prefect work pool and the deployments, as `prefect.yaml` does. Call it again after every change."""
    from flows.deploy import deploy as make

    files = job_file or ([NIGHTLY] if (folder / NIGHTLY).is_file() else [])
    for name in make(folder, files, cron, timezone, pool):
        typer.echo(f"Deployed {name} in {folder.resolve()}")
    if not files:
        typer.echo(
            f"nightly/nightly is left as it was: there is no {folder.resolve() / NIGHTLY}; --job-file names one."
        )
    typer.echo(f"A worker runs them: prefect worker start --pool {pool} --limit 1")
