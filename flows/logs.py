"""Where log lines go: ours into the flow run's log, Prefect's own not between a person and their progress bar."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.exceptions import FailedRun, UnfinishedRun
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from batchjobs.errors import BatchjobsError
from batchjobs.supervision.progress import Reporter

_LEVELS = {"PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_DEBUG_MODE"}
# The terminal's reporter shows the run, and says once that the API is gone, which Prefect's clients say all the time.
_NOT_FOR_PEOPLE = ("prefect.flow_runs", "prefect.task_runs", "prefect.events", "prefect._internal", "EventsWorker")


class _ToRun(logging.Handler):
    """Hands records to the logger of the flow run that is current when this is made, from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._logger = get_run_logger()

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, "%s", record.getMessage(), exc_info=record.exc_info)


@contextmanager
def batchjobs_log_in_run(on_console: bool) -> Iterator[None]:
    """Inside a flow run: the `batchjobs` logger writes into its log; `on_console`: and where it wrote before, too."""
    logger = logging.getLogger("batchjobs")
    handler, level, propagate = _ToRun(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    logger.propagate = propagate and on_console
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def expect_failed_states() -> None:
    """A run that ends as partial, refused or failed says why in its state: no traceback of Prefect's on top."""
    for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    if not record.exc_info:
        return True
    error = record.exc_info[1]  # None: a task returned a failed state
    return error is not None and not isinstance(error, (FailedRun, UnfinishedRun, BatchjobsError))


def show_url(reporter: Reporter) -> None:
    """Tell where the current flow run is seen in a browser."""
    url = url_for("flow-run", obj_id=flow_run.id)
    if url is not None:
        reporter.log(f"Prefect run {flow_run.name}: {url}")


def quiet_console() -> None:
    """For a person at a terminal: of Prefect's console log only warnings, and not what the terminal shows itself.

    Until the process ends, because Prefect's exit handlers log too. Whoever has set a level has chosen already.
    """
    if _LEVELS & set(os.environ):
        return
    for handler in [*logging.getLogger().handlers, *logging.getLogger("prefect._internal").handlers]:
        handler.addFilter(_for_people)
    logging.raiseExceptions = False  # else each batch of log lines that the API does not take is on standard error


def _for_people(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING and not record.name.startswith(_NOT_FOR_PEOPLE)
