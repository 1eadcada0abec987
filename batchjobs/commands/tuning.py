"""The commands that measure settings on a sample of a job's own rows: `tune`, and `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchjobs.commands.arguments import AsJson, Date, JobFile, job_in

if TYPE_CHECKING:
    from schemas.job import JobSpec
    from schemas.summary import Summary


def tune(
    job_file: JobFile,
    rows: Annotated[
        int | None, typer.Option(help="Rows of the sample; default: 4 for each of the largest max_num_seqs.", min=1)
    ] = None,
    max_num_seqs: Annotated[
        list[int] | None, typer.Option(help="Value to try; may be repeated. Default: around what fits.", min=1)
    ] = None,
    max_num_batched_tokens: Annotated[
        list[int] | None, typer.Option(help="Value to try; may be repeated. Default: half and twice.", min=1)
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Another checkpoint, such as a quantised one; may be repeated.")
    ] = None,
    kv_cache_dtype: Annotated[
        list[str] | None, typer.Option(help="Another dtype of the KV cache, such as fp8; may be repeated.")
    ] = None,
    within: Annotated[
        float, typer.Option(help="Use the smallest setting within this share of the fastest.", min=0, max=0.5)
    ] = 0.05,
    repeat: Annotated[int, typer.Option(help="Runs of each setting; the median counts.", min=1)] = 1,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Job file to write; default: JOB.tuned.yaml beside JOB.")
    ] = None,
    date: Date = None,
    as_json: AsJson = False,
) -> None:
    """Try engine settings on a sample of the job's rows, and write a job file with those to use.

    Each setting is a real run with a start of the engine. Ctrl-C ends it with what was measured until then.
    """
    from batchjobs.tuning.job_file import free_name, write_tuned
    from batchjobs.tuning.sweep import Wanted, tune
    from batchjobs.tuning.table import text
    from batchjobs.tuning.trial import settings_of

    file = free_name(job_file, output)
    wanted = Wanted(
        rows,
        max_num_seqs or (),
        max_num_batched_tokens or (),
        [str(Path(name).absolute()) if Path(name).exists() else name for name in model or ()],
        kv_cache_dtype or (),
        within,
        repeat,
    )
    tuning = tune(job_in(job_file, date), wanted, _run_trial, lambda line: typer.echo(line, err=True))
    typer.echo(tuning.model_dump_json(indent=2) if as_json else text(tuning))
    if tuning.own_knee is None or tuning.stopped:
        raise typer.Exit(3 if tuning.stopped else 1)
    write_tuned(job_file, settings_of(tuning.own_knee.setting), file)
    typer.echo(f"Wrote {file}. It goes on with the output of {job_file}, whose answers it does not change.", err=True)


bench = typer.Typer(
    help="Measure what a feature of the engine is worth to a job, on a sample of its own rows.", no_args_is_help=True
)


@bench.command(name="prefix-cache")
def prefix_cache(
    job_file: JobFile,
    rows: Annotated[int, typer.Option(help="How many of the job's rows are the load.", min=1)] = 64,
    date: Date = None,
    as_json: AsJson = False,
) -> None:
    """Run the same load three times on one engine: cold cache, hot cache, independent prefixes. Writes nothing."""
    from batchjobs.tuning.prefix_cache import bench_prefix_cache
    from batchjobs.tuning.prefix_text import text

    found = bench_prefix_cache(job_in(job_file, date), rows, _run_trial)
    typer.echo(found.model_dump_json(indent=2) if as_json else text(found))


def _run_trial(job: JobSpec) -> Summary:
    from batchjobs.job import run_job
    from batchjobs.terminal import Terminal

    with Terminal() as terminal:
        return run_job(job, terminal)
