"""Follow a flow run from afar, through the Prefect API alone: states, progress, and the log lines that matter."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    LogFilter,
    LogFilterFlowRunId,
    LogFilterLevel,
    LogFilterTimestamp,
)
from prefect.client.schemas.objects import Artifact, FlowRun
from prefect.client.schemas.sorting import ArtifactSort, LogSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from batchjobs.errors import BatchjobsError
from batchjobs.terminal import Lines
from flows.api import api_url
from flows.runs import no_worker, worker_is_online
from flows.steps import exit_code_of

_LOOK_S = 2.0  # between looks
_PATIENCE_S = 600.0  # without an answer of the API
_TIMEOUT_S = 10.0  # for one answer
_WAITS_S = 15.0  # for a worker, before somebody asks whether there is one
_LATE = timedelta(seconds=30)  # a log line may arrive so much later than one that was written after it
_WARNING, _ERROR = 30, 40
_ROUTINE = re.compile(r"\bWARNING\b")  # lines of the engine's own log; it warns at every start
_SAID_AT_THE_END = re.compile(r"Finished in state|.* exited with status code: 1;")  # better


@dataclass(frozen=True)
class End:
    """How a run ended."""

    state: str  # Prefect's name of it
    message: str
    exit_code: int  # of the contract


def watch(run: UUID, lines: Lines, patience_s: float = _PATIENCE_S) -> End:
    """Until the run is over. An API that goes away is asked again for `patience_s` seconds; then raises BatchjobsError.

    Ctrl-C ends the watching (KeyboardInterrupt), not the run.
    """
    watcher = _Watcher(run, lines)
    silent_since: float | None = None
    while True:
        try:
            end = watcher.look()
        except ObjectNotFound:
            raise BatchjobsError(f"The flow run {run} was deleted, so nobody knows how it ends.") from None
        except Exception as error:  # a client fails in many ways when the API is gone
            now = time.monotonic()
            if silent_since is None:
                silent_since = now
                lines.line(f"The Prefect API at {api_url()} does not answer; the job goes on. Trying again …")
            if now - silent_since > patience_s:
                raise BatchjobsError(_given_up(run, patience_s)) from error
        else:
            if silent_since is not None:
                silent_since = None
                lines.line("The Prefect API answers again.")
            if end is not None:
                return end
        time.sleep(_LOOK_S)


def _given_up(run: UUID, patience_s: float) -> str:
    return (
        f"The Prefect API at {api_url()} has not answered for {patience_s:.0f} s, so the run {run} is not watched any "
        "more. The job may well go on: `batchjobs status OUT` on its machine tells."
    )


class _Watcher:
    def __init__(self, run: UUID, lines: Lines) -> None:
        self._run, self._lines = run, lines
        self._state: tuple[str | None, str | None] = (None, None)
        self._waits_since: float | None = time.monotonic()
        self._seen: set[UUID] = set()
        self._latest: datetime | None = None
        self._last_look = False

    def look(self) -> End | None:
        """Show what is new; how the run ended, if it is over."""
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"timeout": _TIMEOUT_S}, sync_client=True) as client,
        ):
            run = client.read_flow_run(self._run)
            self._show_state(run)
            for message in self._new_messages(client):
                self._lines.line(message)
            if run.state is not None and run.state.is_final():
                return self._end(client, run)
            self._show_progress(client)
            return None

    def _show_state(self, run: FlowRun) -> None:
        state = run.state
        if state is None:
            return
        if self._state != (state.name, state.message) and not state.is_final():
            self._lines.line(f"{state.name}: {state.message}" if state.message else str(state.name))
        self._state = (state.name, state.message)
        if not (state.is_scheduled() or state.is_pending()):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since > _WAITS_S:
            self._waits_since = float("inf")  # said once
            if run.work_pool_name is not None and not worker_is_online(run.work_pool_name):
                self._lines.line(no_worker(run.work_pool_name))

    def _show_progress(self, client: SyncPrefectClient) -> None:
        progress = _latest(client, self._run, "progress")
        if progress is not None and progress.description:
            self._lines.moving(progress.description.splitlines()[0].strip("*"))

    def _end(self, client: SyncPrefectClient, run: FlowRun) -> End | None:
        if not self._last_look:  # the last lines of its log arrive after its last state
            self._last_look = True
            return None
        assert run.state is not None
        summary = _latest(client, self._run, "markdown")
        if summary is not None and summary.description:
            self._lines.line(summary.description)
        return End(str(run.state.name), run.state.message or "", exit_code_of(run.state))

    def _new_messages(self, client: SyncPrefectClient) -> Iterator[str]:
        after = self._latest - _LATE if self._latest is not None else None
        wanted = LogFilter(
            flow_run_id=LogFilterFlowRunId(any_=[self._run]),
            level=LogFilterLevel(ge_=_WARNING),
            timestamp=LogFilterTimestamp(after_=after) if after is not None else None,
        )
        for entry in client.read_logs(log_filter=wanted, sort=LogSort.TIMESTAMP_ASC):
            if entry.id in self._seen:
                continue
            self._seen.add(entry.id)
            self._latest = max(entry.timestamp, self._latest or entry.timestamp)
            routine = entry.level < _ERROR and _ROUTINE.search(entry.message)
            if not routine and not _SAID_AT_THE_END.match(entry.message):
                yield entry.message


def _latest(client: SyncPrefectClient, run: UUID, kind: str) -> Artifact | None:
    mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
    found = client.read_artifacts(artifact_filter=mine, sort=ArtifactSort.UPDATED_DESC)
    return next((artifact for artifact in found if artifact.type == kind), None)
