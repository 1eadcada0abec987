"""Events that tell other deployments how a job ended: `batchjobs.job.completed|partial|failed|refused`.

At least one for each end: a run that finds its job done tells it again, because the one before may have died after
writing `_SUCCESS` and before telling anybody. Prefect names the flow run, its deployment and its tags in each of them.
"""

from __future__ import annotations

import logging
from typing import Any

from prefect.events import emit_event

from batchjobs.errors import Refused
from schemas.job import JobSpec
from schemas.summary import EXIT_CODES, Summary

logger = logging.getLogger("batchjobs")


def announce(summary: Summary) -> None:
    """Tell that a job has ended. Returns at once, and never raises."""
    rows, tokens = summary.rows, summary.tokens
    _emit(
        summary.job,
        {
            "output": summary.output,
            "state": summary.state,
            "exit_code": summary.exit_code,
            "date": summary.date,
            "message": summary.message,
            "rows": {"ok": rows.ok, "error": rows.error, "total": rows.total, "generated": rows.generated},
            "tokens": {"prompt": tokens.prompt, "output": tokens.output},
            "seconds": summary.seconds.wall,
            "usd": summary.cost.usd_total,
        },
    )


def announce_error(job: JobSpec, error: Exception) -> None:
    """Tell that a job was refused, or could not go on and has no summary. Returns at once, and never raises."""
    state = "refused" if isinstance(error, Refused) else "failed"
    known = {"output": job.output.path, "state": state, "exit_code": EXIT_CODES[state], "date": job.date,
             "message": str(error)}  # fmt: skip
    _emit(job.name, known)


def _emit(job: str, payload: dict[str, Any]) -> None:
    resource = {"prefect.resource.id": f"batchjobs.job.{job}", "prefect.resource.name": job}
    try:
        emit_event(f"batchjobs.job.{payload['state']}", resource, payload=payload)  # only put into a queue here
    except Exception as error:
        logger.warning("Prefect does not take the event that the job has ended: %s", error)
