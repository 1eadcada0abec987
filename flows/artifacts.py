"""What the Prefect UI shows of a job: progress while it runs, its summary at the end, its engine's log lines.

Prefect watches; it never holds the job up. An API that does not answer costs one warning.
"""

from __future__ import annotations

import contextvars
import logging
import os
import re
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from urllib.parse import quote
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.logging import get_run_logger

from batchjobs.accounts.units import dollars, duration
from batchjobs.reports.text import markdown
from batchjobs.storage.checkpoint import Commit
from batchjobs.storage.store import Store
from batchjobs.supervision.progress import Progress, Reporter
from flows.tables import attempts_table, shards_table
from schemas.summary import Summary

logger = logging.getLogger("batchjobs")

_FIRST_S, _EVERY_S = 1.0, 5.0  # seconds to the first look at the progress, and between looks
_LAST_S = 3.0  # seconds that the last look may take: a job's end does not wait for an API that does not answer
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")


class PrefectReporter:
    """A Reporter inside a Prefect run; tells `also` everything too. Use as a context manager.

    The API is called from a thread of its own: Prefect's client goes on trying for minutes, and the job must not wait.
    """

    def __init__(self, also: Reporter, every_s: float = _EVERY_S) -> None:
        self._also, self._every_s = also, every_s
        self._run_log = get_run_logger()
        self._latest: Progress | None = None
        self._shown: Progress | None = None
        self._artifact: UUID | None = None
        self.lost = False  # the API did not answer the last call
        self._end = threading.Event()
        context = contextvars.copy_context()  # the run that artifacts and log lines belong to
        self._thread = threading.Thread(target=context.run, args=(self._look,), name="artifacts", daemon=True)

    def __enter__(self) -> PrefectReporter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(0 if self.lost else _LAST_S)
        if self._thread.is_alive():
            self._lose("It took too long.")

    def progress(self, now: Progress) -> None:
        """See Reporter."""
        self._latest = now
        self._also.progress(now)

    def log(self, line: str) -> None:
        """See Reporter."""
        self._run_log.log(level_of(line), line)
        self._also.log(line)

    def _look(self) -> None:
        pause = min(_FIRST_S, self._every_s)
        while not self._end.wait(pause):
            self._show()
            pause = self._every_s
        self._show()

    def _show(self) -> None:
        now = self._latest
        if now is None or now is self._shown:
            return
        try:
            self._publish(now)
        except Exception as error:
            self._lose(_short(error))
        else:
            self._shown, self.lost = now, False

    def _lose(self, why: str) -> None:
        if not self.lost:
            text = f"The Prefect API does not answer; the job goes on without it. {why}"
            self._run_log.warning(text)  # which a worker prints
            self._also.log(text)
        self.lost = True

    def _publish(self, now: Progress) -> None:
        share, text = 100 * share_of(now), describe(now)
        if self._artifact is None:
            created = create_progress_artifact(share, description=text)
            assert isinstance(created, UUID)  # not a coroutine: no event loop runs in this thread
            self._artifact = created
        else:
            update_progress_artifact(self._artifact, share, description=text)


def share_of(now: Progress) -> float:
    """Rows done, 0..1. A dataset without rows is done."""
    return min(1.0, now.rows_done / now.rows_total) if now.rows_total else 1.0


def describe(now: Progress) -> str:
    """The moment as markdown: one line that is read at a glance, one for those who look closer."""
    glance = [f"{now.rows_done:,} of {now.rows_total:,} rows"]
    if now.output_tokens_per_s is not None:
        glance.append(f"{now.output_tokens_per_s:,.0f} tokens/s")
    if now.seconds_left is not None and now.phase == "generating":
        glance.append(f"{duration(now.seconds_left)} left")
    if now.deadline is not None:
        glance.append(f"{duration(max(0.0, (now.deadline - datetime.now(UTC)).total_seconds()))} to the deadline")
    if now.usd_so_far is not None:
        most = f" of {dollars(now.max_cost_usd)}" if now.max_cost_usd is not None else ""
        glance.append(f"${now.usd_so_far:,.4f}{most} so far")
    glance.append(f"{now.errors:,} errors")
    phase = "starting the engine" if now.phase == "starting" else now.phase
    closer = [
        f"{phase}, {duration(now.elapsed_s)}" if now.elapsed_s else phase,  # no engine is alive at the very end
        f"attempt {now.attempt}",
        f"{now.shards_committed:,} of {now.shards_total:,} shards committed",
        f"{now.running:,} requests running, {now.waiting:,} waiting",
    ]
    if now.rows_reused:
        closer.append(f"{now.rows_reused:,} rows reused")
    if now.rows_deduplicated:
        closer.append(f"{now.rows_deduplicated:,} rows deduplicated")
    if now.kv_cache_usage is not None:
        closer.append(f"KV cache {now.kv_cache_usage:.0%} full")
    return f"**{' · '.join(glance)}**\n\n{' · '.join(closer)}"


def level_of(line: str) -> int:
    """The logging level that a line of an engine's log names."""
    found = _LEVEL.search(line)
    if found is not None:
        return logging.getLevelNamesMapping()[found[1]]
    return logging.ERROR if "out of memory" in line.lower() else logging.INFO


def draw_report(store: Store) -> str | None:
    """Write `report.html`; where it is, or None and a warning: a picture is no reason for a job to fail."""
    try:
        from batchjobs.reports.page import write_report  # loads matplotlib: only when it is needed

        return write_report(store)
    except Exception as error:
        logger.warning("The report is not written; `batchjobs report %s` tries again. %s", store.url, _short(error))
        return None


def publish(summary: Summary, commits: Sequence[Commit] | None = None, report: str | None = None) -> None:
    """The summary, a link to the report and, where there are commits, tables of attempts and shards. Never raises.

    Each has one key for a job: its runs are versions.
    """
    where = f"\n\nReport: `{report}`" if report else ""
    try:
        key = artifact_key(summary.job, "summary")
        create_markdown_artifact(markdown(summary) + where, key=key, description=headline(summary))
        if report is not None and (link := link_to(report)) is not None:
            create_link_artifact(link, "report.html", key=artifact_key(summary.job, "report"))
        if commits is not None:
            _publish_tables(summary, commits)
    except Exception as error:
        logger.warning("The Prefect API does not answer; it did not get all of the summary. %s", _short(error))


def _publish_tables(summary: Summary, commits: Sequence[Commit]) -> None:
    job = summary.job
    if attempts := attempts_table(summary.attempts):
        create_table_artifact(
            attempts, artifact_key(job, "attempts"), f"Replicas and attempts of {job}, over all its runs."
        )
    if shards := shards_table(commits):
        told = f"{len(shards):,} of {len(commits):,} committed shards of {job}: with errors first, then the slowest."
        create_table_artifact(shards, artifact_key(job, "shards"), told)


def link_to(report: str) -> str | None:
    """Where a browser opens the report: behind `BATCHJOBS_REPORT_URL`, which serves the file system, or a store.

    None without that variable: a page that came over HTTP may link neither to a file nor to an object.
    """
    prefix = os.environ.get("BATCHJOBS_REPORT_URL")
    return f"{prefix.rstrip('/')}/{quote(report.split('://')[-1].lstrip('/'))}" if prefix else None


def headline(summary: Summary) -> str:
    """What the list of artifacts shows of a summary: one line."""
    rows, cost = summary.rows, summary.cost.usd_total
    told = [summary.state, f"{rows.ok:,} of {rows.planned - rows.filtered:,} rows ok", f"{rows.error:,} errors"]
    return " · ".join([*told, duration(summary.seconds.wall), *([] if cost is None else [f"${cost:,.4f}"])])


def artifact_key(*parts: str) -> str:
    """Words joined into a key as Prefect allows it: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-") or "job"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no answer'}"
