"""`report.html`: one page that needs nothing else and tells a run to somebody who was not there.

It is written on demand, and by the Prefect flow at its end, not by every run: the pictures take a second or two, for
which a person who waits for the command should not have to wait, and a report that is drawn later says the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from batchjobs.reports import baseline, overview, settings, spending, trouble, wording
from batchjobs.reports.evidence import Evidence, gather
from batchjobs.reports.lengths import lengths_of
from batchjobs.reports.plots import length_plot, timeline_plots
from batchjobs.reports.redact import Redactor
from batchjobs.reports.source import open_source
from batchjobs.storage.failures import storage_errors
from batchjobs.storage.output import REPORT
from batchjobs.storage.store import Store
from schemas.plan import Plan
from schemas.summary import Summary


def write_report(store: Store, file: Path | None = None) -> str:
    """Write the report of an output folder into it, or into a local file. Returns where it is.

    Raises OutputError for a folder that is no output of ours, StorageFailed if it cannot be read or written.
    """
    source = open_source(store)
    page = render(source.summary, source.plan, gather(source.parts), source.spec)
    data = page.encode("utf-8", "replace")  # half a surrogate pair has no UTF-8
    if file is None:
        store.publish(REPORT, data, replace=True)
        return f"{store.url}/{REPORT}"
    with storage_errors("write", file):
        file.write_bytes(data)
    return str(file)


def render(summary: Summary, plan: Plan, evidence: Evidence, spec: dict[str, Any]) -> str:
    """The page of these. `spec` is the job file's mapping; its secrets are left out."""
    redactor = Redactor(spec)
    lengths = lengths_of(summary, evidence)
    slots, replicas = summary.engine.max_num_seqs, summary.engine.replicas
    numbers = evidence.numbers
    plots = (
        length_plot("prompt-lengths", "Prompt tokens of a row", numbers.prompt_tokens, lengths.prompt),
        length_plot("answer-lengths", "Tokens of an answer", numbers.output_tokens, lengths.output),
    )
    return (
        _environment(redactor)
        .get_template("page.html")
        .render(
            s=summary,
            mark=overview.STATE_MARKS[summary.state],
            what_ran=overview.what_ran(summary, plan, redactor.spec),
            tiles=overview.tiles(summary),
            acceptance=overview.acceptance(summary, redactor.spec, evidence, lengths),
            segments=spending.segments(summary),
            wall_clock=spending.wall_clock(summary),
            prices=spending.prices(summary),
            saved=spending.saved(summary),
            foreseen=spending.foreseen(summary),
            work=spending.work(summary),
            timeline=timeline_plots(summary.timeline, slots * max(1, replicas) if slots else None),
            lengths=lengths,
            length_plots=[plot for plot in plots if plot is not None],
            latency=trouble.latency(summary),
            evidence=evidence,
            errors=trouble.errors(summary, evidence),
            health=trouble.health(summary, evidence),
            attempts=trouble.attempts(summary),
            comparison=baseline.comparison(summary),
            decided=settings.decided(summary),
            in_force=settings.in_force(summary),
            versions=settings.versions(summary, plan),
            job_file=settings.job_file(redactor.spec),
        )
    )


def _environment(redactor: Redactor) -> Environment:
    def clean(value: Any) -> Any:
        return redactor.text(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("batchjobs.reports", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=wording.seconds, count=wording.count)
    return environment
