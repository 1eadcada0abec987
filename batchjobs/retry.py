"""`batchjobs retry-failed`: run the rows of a finished job again that failed for no reason of their own."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import yaml

from batchjobs.errors import OutputError, SpecError
from batchjobs.job import finish, prepare, run
from batchjobs.spec import parse_job
from batchjobs.storage.output import SPEC, not_ours
from batchjobs.storage.store import open_store
from batchjobs.supervision.progress import Reporter
from schemas.deadline import parse_deadline
from schemas.job import JobSpec
from schemas.records import ErrorCode
from schemas.summary import Summary

# What the row itself says will not change: these would fail again.
OF_THE_ROW = frozenset({
    ErrorCode.NULL_PROMPT, ErrorCode.EMPTY_PROMPT, ErrorCode.PROMPT_TOO_LONG, ErrorCode.TEMPLATE_ERROR,
    ErrorCode.BAD_MESSAGES, ErrorCode.BAD_TOKEN_IDS, ErrorCode.BAD_SAMPLING, ErrorCode.BAD_VALUE,
})  # fmt: skip
DEFAULT_CODES = frozenset(ErrorCode) - OF_THE_ROW


def retry_failed(output: str, codes: Collection[str], reporter: Reporter, force: bool = False) -> Summary:
    """Run again the rows with these error codes (default: those that may go well now), replacing only their parts.

    Each part is replaced in one step. The limits of the frozen spec hold, except a deadline that is a date, which was
    of another run. `force` is as in `prepare`. Raises SpecError for an unknown code, OutputError if there is no
    finished job.
    """
    unknown = sorted(set(codes) - set(ErrorCode))
    if unknown:
        raise SpecError(f"--code: found {unknown[0]}; allowed: {', '.join(ErrorCode)}")
    job = _without_date(job_of(output))
    prepared = prepare(job, frozen_input=True, retry=frozenset(codes or DEFAULT_CODES), force=force)
    if prepared.stored is not None:
        return prepared.stored
    try:
        return finish(prepared, run(prepared, reporter))
    finally:
        prepared.lock.release()


def _without_date(job: JobSpec) -> JobSpec:
    if job.run.deadline is None or not isinstance(parse_deadline(job.run.deadline), datetime):
        return job
    return job.model_copy(update={"run": job.run.model_copy(update={"deadline": None})})


def job_of(output: str) -> JobSpec:
    """The job that an output folder belongs to, with its output where the folder is now."""
    store = open_store(output)
    data = store.read(SPEC)
    if data is None:
        raise not_ours(store)
    try:
        spec = yaml.safe_load(data)
        spec["output"]["path"] = store.url
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise OutputError(f"{store.url}/{SPEC} cannot be read: {error}") from error
    return parse_job(spec, where=f"{store.url}/{SPEC}")
