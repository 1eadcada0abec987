"""The command line: a thin skin. Heavy imports are inside the commands, so that `--help` and `status` are quick."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from batchjobs import __version__
from batchjobs.commands import automations, backfill, deploy, running, submission, tuning
from batchjobs.commands.arguments import AsJson, Date, Force, JobFile, Output, job_in
from batchjobs.commands.running import print_summary
from batchjobs.errors import BatchjobsError
from batchjobs.rows.tokenizers_only import spare_torch

app = typer.Typer(
    name="batchjobs",
    help="Offline batch inference over Parquet with vLLM: every row gets one answer, and nothing is done twice.\n\n"
    "Start with `batchjobs init DATASET`, look at some answers with `batchjobs try job.yaml`, then "
    "`batchjobs run job.yaml`. "
    "Kill it at any moment and run the same command again: it goes on.\n\n"
    "Exit codes: 0 completed, 1 failed, 2 refused (nothing was changed), 3 partial (run again, or too many errors).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


app.command()(running.run)


@app.command()
def plan(
    job_file: JobFile,
    full: Annotated[bool, typer.Option("--full", help="Look at every row, not at about a thousand.")] = False,
    device: Annotated[str | None, typer.Option(help="Plan for this GPU (H100, L4, …) or `cpu`.")] = None,
    memory: Annotated[str | None, typer.Option(help="Plan for a GPU with so much memory, such as 24GiB.")] = None,
    date: Date = None,
    as_json: AsJson = False,
) -> None:
    """Show what a job would do: rows, tokens, capacity, time, money. Writes nothing; needs no GPU and no vLLM."""
    from batchjobs.describe import describe
    from batchjobs.reports.plan import text

    found = describe(job_in(job_file, date), full, device, memory)
    typer.echo(json.dumps(found.plain(), indent=2) if as_json else text(found))


@app.command(name="try")
def try_(
    job_file: JobFile,
    rows: Annotated[int, typer.Option("-n", "--rows", help="How many rows.", min=1)] = 5,
    date: Date = None,
    as_json: AsJson = False,
) -> None:
    """Render and run the first few rows; print prompt and answer side by side. Writes nothing."""
    from batchjobs.preview import preview, side_by_side
    from batchjobs.terminal import Terminal

    with Terminal() as terminal:
        pairs = preview(job_in(job_file, date), rows, terminal)
    typer.echo(json.dumps(pairs, indent=2, ensure_ascii=False) if as_json else side_by_side(pairs))


@app.command()
def init(
    dataset: Annotated[str, typer.Argument(help="Parquet file, folder or glob; any fsspec URL.", show_default=False)],
    file: Annotated[Path, typer.Option("-o", "--output", help="The job file to write.")] = Path("job.yaml"),
) -> None:
    """Write a commented first job file for a dataset."""
    from batchjobs.init import write_job_file

    write_job_file(dataset, file)
    typer.echo(f"Wrote {file}. Edit it, then: batchjobs try {file}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of job files, for editors."""
    from schemas.job import JobSpec

    typer.echo(json.dumps(JobSpec.model_json_schema(), indent=2))


@app.command()
def status(output: Output, as_json: AsJson = False) -> None:
    """Tell a job's state and progress from its output folder alone."""
    from batchjobs.status import describe, read_status

    found = read_status(output)
    typer.echo(json.dumps(found, indent=2) if as_json else describe(found))


@app.command()
def verify(output: Output, as_json: AsJson = False) -> None:
    """Re-read every part and prove the output complete: no GPU needed. Exits 1 with the first discrepancies."""
    from batchjobs.verify import verify_output

    proof = verify_output(output)
    typer.echo(proof.model_dump_json(indent=2) if as_json else proof.text())
    raise typer.Exit(0 if proof.complete else 1)


@app.command()
def report(
    output: Output,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write it here; default: OUT/_batchjobs/report.html.")
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the summary as markdown, write nothing.")
    ] = False,
) -> None:
    """Write a page that tells a run to somebody who was not there, with pictures; print where it is. Needs no GPU."""
    from batchjobs.storage.store import open_store

    store = open_store(output)
    if as_markdown:
        from batchjobs.reports.source import open_source
        from batchjobs.reports.text import markdown

        typer.echo(markdown(open_source(store).summary))
    else:
        from batchjobs.reports.page import write_report

        typer.echo(write_report(store, file))


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="Output folder, or any fsspec URL.", show_default=False)],
    now: Annotated[str, typer.Argument(metavar="B", help="The one to hold against it.", show_default=False)],
    sample: Annotated[
        int, typer.Option(help="Read the answers of at most so many rows that both have, evenly spaced.", min=1)
    ] = 20_000,
    as_json: AsJson = False,
) -> None:
    """Put two outputs side by side: settings, speed, cost, output health and agreement of the answers, row by row."""
    from batchjobs.comparison.compare import compare
    from batchjobs.comparison.text import text

    found = compare(before, now, sample)
    typer.echo(found.model_dump_json(indent=2) if as_json else text(found))


@app.command(name="retry-failed")
def retry_failed(
    output: Output,
    code: Annotated[list[str] | None, typer.Option(help="Error code to retry; may be repeated.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run failed rows again; only their parts are replaced, one atomic step each. Default: not what must fail again."""
    from batchjobs.retry import retry_failed
    from batchjobs.terminal import Terminal

    with Terminal() as terminal:
        summary = retry_failed(output, code or [], terminal, force)
    print_summary(summary, as_json)
    raise typer.Exit(summary.exit_code)


@app.command()
def explain(
    output: Output,
    row: Annotated[int, typer.Argument(help="Row number, as in the column `row`.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a row's rendered prompt, tokens, result and attempt. Needs the input, but no GPU."""
    from batchjobs.explain import explain_row, text

    found = explain_row(output, row)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False) if as_json else text(found))


for command in (
    submission.submit, submission.cancel, backfill.backfill, deploy.deploy, automations.automations,
):  # fmt: skip
    app.command(rich_help_panel="Nights, and runs on Prefect workers")(command)
app.command()(tuning.tune)
app.add_typer(tuning.bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchjobs {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _leave(end: SystemExit) -> None:
    """Exit without the interpreter's farewell, in which a thread of Arrow's that was just starting would abort the
    process (signal 6, now and then). Prefect needs the farewell: it sends its last logs there.
    """
    if "prefect" in sys.modules or not isinstance(end.code, int | None):
        raise end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # whoever reads it may be gone
            stream.flush()
    os._exit(end.code or 0)


def main() -> None:
    """Entry point of the `batchjobs` command: errors are sentences, exit codes are the contract's."""
    spare_torch()
    try:
        app()
    except SystemExit as end:
        _leave(end)
    except OSError as error:  # StorageFailed is one
        hint = "What is committed stays; once that is repaired, the same command goes on."
        typer.echo(f"batchjobs: {error}. {hint}", err=True)
        sys.exit(1)
    except BatchjobsError as error:
        typer.echo(f"batchjobs: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
