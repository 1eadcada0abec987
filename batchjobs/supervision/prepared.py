"""A job that may run: checked, planned or compared with its earlier plan, its output locked."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from batchjobs.accounts.accounting import verdict
from batchjobs.accounts.baseline import state_after
from batchjobs.accounts.figures import RunFigures
from batchjobs.accounts.lengths import OutputLengths
from batchjobs.dates import refuse_unfilled
from batchjobs.errors import OutputError
from batchjobs.forecast.estimate import foresee
from batchjobs.planning.plan import (
    Dataset,
    check_overlap,
    compare,
    make_plan,
    read_dataset,
    versions,
    warn_of_versions,
)
from batchjobs.rows.sampling import row_field_names
from batchjobs.settings.devices import Placement, placements
from batchjobs.settings.history import lengths_of, newest_record
from batchjobs.settings.sizing import Decisions, decide
from batchjobs.settings.survey import survey
from batchjobs.spec import dump_job, resolve_references
from batchjobs.storage.attempts import close_lost, read_attempts
from batchjobs.storage.checkpoint import Commit, clean_temporary, committed_shards, part_name, read_commit
from batchjobs.storage.lease import fenced
from batchjobs.storage.lock import OutputLock, acquire
from batchjobs.storage.output import METRICS, OURS, PLAN, SPEC, SUCCESS, SUMMARY, read_plan, read_summary
from batchjobs.storage.store import Store, open_store
from batchjobs.supervision.arrival import await_input
from batchjobs.supervision.device_lock import DeviceLocks
from batchjobs.supervision.limits import Limits, limits_of, refuse_beyond, refuse_without_room
from batchjobs.supervision.preflight import check_engine
from schemas.figures import Estimate
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.summary import Attempt, Previous, Summary


@dataclass
class PreparedJob:
    """A job that may run: planned, compared with what is there, and its output locked."""

    job: JobSpec  # as given, references kept
    resolved: JobSpec
    store: Store
    plan: Plan
    paths: list[str]  # where each planned input file is now
    lock: OutputLock
    began: float  # monotonic
    plan_s: float = 0.0
    placements: list[Placement] = field(default_factory=lambda: [Placement()])  # one for each replica
    devices: DeviceLocks = field(default_factory=DeviceLocks)  # while it runs
    earlier: list[Commit] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    lengths: OutputLengths = field(default_factory=OutputLengths)  # of answers, as earlier runs and attempts saw them
    stored: Summary | None = None  # set when there is nothing to do
    retry: frozenset[str] = frozenset()  # error codes whose rows run again; their parts are replaced
    sizing: Decisions = field(default_factory=dict)  # the settings that the job leaves open
    limits: Limits = field(default_factory=Limits)
    foreseen: Estimate | None = None  # of what is left
    previous: Previous | None = None  # what the run that did the last of it was held against

    @property
    def left(self) -> list[int]:
        """Shards without a part, and those with rows to retry."""
        done = {commit.shard for commit in self.earlier}
        return [index for index in range(len(self.plan.shards)) if index not in done]


def prepare(
    job: JobSpec, frozen_input: bool = False, retry: frozenset[str] = frozenset(), force: bool = False
) -> PreparedJob:
    """Check everything, plan or find the earlier plan, take the lock. Raises Refused before anything is written.

    With `retry`, rows of a finished job that failed with one of these codes are to run again. With `force`, a job that
    does not fit its deadline or its budget is begun all the same. Waits for an input that is not complete yet, if the
    job says so; a deadline counts from before that.
    """
    limits = limits_of(job, datetime.now(UTC))
    refuse_unfilled(job)
    resolved = resolve_references(job)
    store = open_store(resolved.output.path, resolved.output.storage_options)
    if resolved.output.path.startswith("memory://"):
        raise OutputError(
            "output.path: found a memory:// path; a replica's memory ends with it. Use a folder or a store."
        )
    if resolved.input.ready is not None and read_plan(store) is None:  # what was planned once was complete then
        await_input(resolved, limits.deadline)
        limits = replace(limits, began=datetime.now(UTC))
    began = time.monotonic()
    dataset = read_dataset(resolved)
    check_overlap(resolved, dataset)
    plan = make_plan(job, resolved, dataset)
    frozen = read_plan(store)
    if frozen is None:
        _refuse_foreign(store)
        check_engine(resolved, row_field_names(job.sampling, dataset.schema))
        paths = [file.path for file in plan.files]
    else:
        paths = compare(frozen, plan, store.url, frozen_input)
        plan = frozen
    prepared = PreparedJob(job, resolved, store, plan, paths, OutputLock(), began, retry=retry, limits=limits)
    prepared.stored = nothing_to_retry(store, plan, retry) if retry else nothing_to_do(store, plan, job)
    if prepared.stored is None:
        prepared.placements = placements(resolved)
        _look_ahead(prepared, dataset)
        refuse_without_room(limits, min(len(prepared.placements), len(prepared.left)))
        refuse_beyond(limits, prepared.foreseen, force)
        _take(prepared)
    prepared.plan_s = time.monotonic() - began
    return prepared


def _refuse_foreign(store: Store) -> None:
    foreign = [name for name in store.names() if name != OURS]
    if foreign:
        raise OutputError(
            f"output.path: {store.url} is not empty and not an output of batchjobs (it has {foreign[0]}). "
            "Nothing was changed; use an empty or new folder."
        )


def nothing_to_do(store: Store, plan: Plan, job: JobSpec) -> Summary | None:
    """The stored summary, if every shard is committed and the verdict of today's spec is the one it has."""
    stored = _stored_summary(store)
    if stored is None or committed_shards(store) != set(range(len(plan.shards))):
        return None
    state, _ = verdict(job, plan, stored.rows, stored.shards.committed, RunFigures())
    return stored if state_after(state, stored.previous, job.baseline) == stored.state else None


def nothing_to_retry(store: Store, plan: Plan, codes: frozenset[str]) -> Summary | None:
    """The stored summary, if no row failed with one of these codes; raises OutputError if the job is not finished."""
    if len(committed_shards(store)) < len(plan.shards):
        raise OutputError(f"The job in {store.url} is not finished: run it first. Nothing was changed.")
    stored = _stored_summary(store)
    return None if stored is None or codes & stored.errors.keys() else stored


def _stored_summary(store: Store) -> Summary | None:
    """The summary of the last run; None if that one was killed before its very end, which is `_SUCCESS`."""
    stored = read_summary(store)
    if stored is not None and (stored.state == "completed") == (store.read(SUCCESS) is not None):
        return stored
    return None


def read_parts(store: Store, plan: Plan) -> list[Commit]:
    """The commit record of every part; raises OutputError for a part that is damaged or not of this job."""
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(partial(_commit_of, store, plan), sorted(committed_shards(store))))


def _commit_of(store: Store, plan: Plan, shard: int) -> Commit:
    try:
        commit = read_commit(store, shard)
    except ValueError as error:
        raise _bad_part(store, shard, f"is damaged: {error}") from error
    if commit.fingerprint != plan.fingerprint or shard >= len(plan.shards):
        raise _bad_part(store, shard, "is not of this job")
    if commit.shard != shard:
        raise _bad_part(store, shard, f"is a copy of the part of shard {commit.shard}")
    return commit


def _bad_part(store: Store, shard: int, what: str) -> OutputError:
    name = part_name(shard)
    return OutputError(f"{store.url}/{name} {what}. Nothing was changed. Remove it and run again: its rows are redone.")


def _rows_left(prepared: PreparedJob, commits: list[Commit]) -> int:
    """Rows that may have to be generated; of a job that retries, those that failed so."""
    if prepared.retry:
        return sum(count for commit in commits for code, count in commit.errors.items() if code in prepared.retry)
    return sum(prepared.plan.shards[shard].rows for shard in prepared.left)


def _look_ahead(prepared: PreparedJob, dataset: Dataset) -> None:
    """What is left and what it will take. Only reads, without the lock: the job may still be refused."""
    job, plan = prepared.resolved, prepared.plan
    commits = read_parts(prepared.store, plan)
    prepared.earlier = _to_keep(prepared, commits)
    record = newest_record(job)
    prepared.lengths = lengths_of(record)
    left, rows = prepared.left, _rows_left(prepared, commits)
    if not left:
        return
    facts = survey(job, plan, dataset.fs, prepared.paths, left, rows, prepared.lengths)
    prepared.sizing = decide(facts)
    replicas = min(len(prepared.placements), len(left))
    is_whole = rows == plan.rows and plan.files == dataset.files
    prompt_bytes = dataset.prompt_bytes if is_whole else None
    prepared.foreseen = foresee(facts, prepared.lengths, record, prepared.sizing, replicas, prompt_bytes)


def _to_keep(prepared: PreparedJob, commits: list[Commit]) -> list[Commit]:
    """The shards that this run leaves as they are."""
    return [commit for commit in commits if not prepared.retry & commit.errors.keys()]


def _take(prepared: PreparedJob) -> None:
    """The lock, and what is left looked at again with it in hand: others may have been here meanwhile."""
    prepared.lock = acquire(prepared.store)
    store = prepared.store = fenced(prepared.store, prepared.lock.epoch)
    try:
        frozen = read_plan(store)
        if frozen is not None and frozen.fingerprint != prepared.plan.fingerprint:
            raise _begun_by_another(store)
        commits = read_parts(store, prepared.plan)
        again = None if prepared.retry else nothing_to_do(store, prepared.plan, prepared.job)
        if again is not None:  # another runner finished it while this one waited for the lock
            prepared.stored = again
            prepared.lock.release()
            return
        ended = read_summary(store)
        prepared.previous = ended.previous if ended is not None else None
        prepared.earlier = _to_keep(prepared, commits)
    except BaseException:
        prepared.lock.release()
        raise


def begin(prepared: PreparedJob) -> None:
    """Freeze the plan, and take away what tells of a run that is over. The first that is written: from here on, a run
    is not refused any more."""
    store = prepared.store
    clean_temporary(store)
    if read_plan(store) is None:
        store.publish(SPEC, dump_job(prepared.job).encode(), replace=True)
        store.publish(PLAN, prepared.plan.model_dump_json().encode())
    frozen = read_plan(store)  # not what we meant to write but what is there
    if frozen is None or frozen.fingerprint != prepared.plan.fingerprint:
        raise _begun_by_another(store)
    store.delete([SUCCESS, SUMMARY, METRICS])  # they tell of a run that came to its end: no longer true, or not yet
    warn_of_versions("batchjobs", {prepared.plan.versions["batchjobs"]}, versions()["batchjobs"])
    prepared.attempts = close_lost(store, read_attempts(store))


def _begun_by_another(store: Store) -> OutputError:
    return OutputError(f"The output {store.url} was begun by another job just now. Nothing was changed.")
