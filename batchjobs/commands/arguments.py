"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from schemas.job import JobSpec

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="Job file (YAML).", show_default=False)]
Date = Annotated[
    str | None,
    typer.Option(
        "--date",
        metavar="YYYY-MM-DD",
        help="What {{ ds }} and the other date variables of the job file stand for; default: today on this machine. "
        "Refused if the file has none.",
        show_default=False,
    ),
]
Output = Annotated[
    str, typer.Argument(metavar="OUT", help="Output folder of a job, or any fsspec URL.", show_default=False)
]
Force = Annotated[
    bool, typer.Option("--force", help="Run though deadline or budget cannot be met; it stops in time all the same.")
]
ThroughPrefect = Annotated[
    bool | None,
    typer.Option("--prefect/--no-prefect", help="Through the Prefect flow; default: if a Prefect API is configured."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]


def job_in(job_file: Path, date: str | None) -> JobSpec:
    """The job that a command is to work on; raises SpecError."""
    from batchjobs.dates import parse_date
    from batchjobs.spec import load_job

    return load_job(job_file, None if date is None else parse_date(date))
