"""`batchjobs retry-failed`: run the rows of a finished job again that failed for no reason of their own."""

from __future__ import annotations

from collections.abc import Collection

from batchjobs.errors import SpecError
from batchjobs.job import finish, prepare, run
from batchjobs.storage.output import read_job
from batchjobs.storage.store import open_store
from batchjobs.supervision.progress import Reporter
from schemas.job import JobSpec
from schemas.records import ErrorCode
from schemas.summary import Summary

# What the row itself says will not change: these would fail again.
OF_THE_ROW = frozenset({
    ErrorCode.NULL_PROMPT, ErrorCode.EMPTY_PROMPT, ErrorCode.PROMPT_TOO_LONG, ErrorCode.TEMPLATE_ERROR,
    ErrorCode.BAD_MESSAGES, ErrorCode.BAD_TOKEN_IDS, ErrorCode.BAD_SAMPLING, ErrorCode.BAD_VALUE,
})  # fmt: skip
DEFAULT_CODES = frozenset(ErrorCode) - OF_THE_ROW


def retry_failed(output: str, codes: Collection[str], reporter: Reporter) -> Summary:
    """Run again the rows with these error codes (default: those that may go well now), replacing only their parts.

    Each part is replaced in one step. Raises SpecError for an unknown code, OutputError if there is no finished job.
    """
    unknown = sorted(set(codes) - set(ErrorCode))
    if unknown:
        raise SpecError(f"--code: found {unknown[0]}; allowed: {', '.join(ErrorCode)}")
    prepared = prepare(job_of(output), frozen_input=True, retry=frozenset(codes or DEFAULT_CODES))
    if prepared.stored is not None:
        return prepared.stored
    try:
        return finish(prepared, run(prepared, reporter))
    finally:
        prepared.lock.release()


def job_of(output: str) -> JobSpec:
    """The job that an output folder belongs to, with its output where the folder is now."""
    return read_job(open_store(output))
