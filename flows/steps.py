"""One job as one flow run: the three coarse tasks, and what the states of Prefect say about how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from batchjobs import job as core
from batchjobs.accounts.figures import RunFigures
from batchjobs.errors import BatchjobsError
from batchjobs.job import PreparedJob
from batchjobs.supervision.progress import Reporter, Silent
from flows.api import give_up_on_api
from flows.artifacts import PrefectReporter, draw_report, publish
from flows.events import announce, announce_error
from flows.logs import batchjobs_log_in_run, expect_failed_states, show_url
from schemas.job import JobSpec
from schemas.summary import EXIT_CODES, Summary

_MOST_DRAIN_S = 20.0  # of the 30 s that Prefect gives: the rest is for parts, journal and summary
_NAMES = {"refused": "Refused", "partial": "Partial"}  # states of ours that Prefect has no type for


@dataclass
class Caller:
    """Whoever runs a flow in this process, and what the flow left for them: a Summary is no flow parameter."""

    reporter: Reporter
    has_ui: bool
    work: Work | None = None


class Work:
    """A job on its way through the three tasks. A plain class, because Prefect walks through dataclasses and models."""

    def __init__(self, spec: Callable[[], JobSpec], frozen_input: bool, force: bool, caller: Caller | None) -> None:
        self.spec, self.frozen_input, self.force, self.caller = spec, frozen_input, force, caller
        self.job: JobSpec | None = None
        self.prepared: PreparedJob | None = None
        self.figures: RunFigures | None = None
        self.summary: Summary | None = None
        self.error: Exception | None = None
        self.alone = False  # the API is gone, and somebody waits for the end: a worker has time, a person has not

    def plan(self) -> State[None]:
        """Prepare the job; takes the lock."""
        self.job = drained_in_time(self.spec())
        self.prepared = prepared = core.prepare(self.job, self.frozen_input, force=self.force)
        if prepared.stored is not None:
            return Completed(message="Everything is done already.")
        rows, shards, left = prepared.plan.rows, len(prepared.plan.shards), len(prepared.left)
        return Completed(message=f"{rows:,} rows in {shards:,} shards, {left:,} of them left.")

    def run(self) -> State[None]:
        """Run what is left."""
        assert self.prepared is not None
        if self.prepared.stored is not None:
            self.figures = RunFigures()
            return Completed(message="Nothing to do.")
        with PrefectReporter(self.caller.reporter if self.caller else Silent()) as reporter:
            self.figures = figures = core.run(self.prepared, reporter)
        if reporter.lost and self.caller is not None:
            self.alone = True
            give_up_on_api()
        if figures.failure is not None:
            return Failed(message=figures.failure)
        come = f"{len(figures.commits):,} of {len(self.prepared.left):,} shards committed."
        if figures.limit is not None:
            return Completed(message=f"{figures.limit.what}: {come}")
        return Completed(message=f"Stopped: {come}" if figures.stopped else come)

    def summarise(self) -> State[None]:
        """Write the summary, give the lock back."""
        assert self.prepared is not None
        assert self.figures is not None
        self.summary = core.finish(self.prepared, self.figures)
        return Completed(message=self.summary.message)

    def leave(self) -> None:
        """The lock is free afterwards and, if the run itself came to its end, its summary is written."""
        try:
            if self.figures is not None and self.summary is None and self.error is None:
                self.summarise()
        finally:
            if self.prepared is not None:
                self.prepared.lock.release()

    def tell(self) -> None:
        """Send the event that it has ended. A job file that cannot be read has no name to send one under."""
        if self.error is not None:
            if self.job is not None:
                announce_error(self.job, self.error)
        elif self.summary is not None and not self.alone:
            announce(self.summary)


def drained_in_time(job: JobSpec) -> JobSpec:
    """The job with a drain time that ends before Prefect kills what it has asked to leave (30 s)."""
    drain = min(job.run.drain_seconds, _MOST_DRAIN_S)
    return job.model_copy(update={"run": job.run.model_copy(update={"drain_seconds": drain})})


def _done(work: Work, step: Callable[[], State[None]]) -> State[None]:
    """The state of a task. An error that is meant for people is a state with a sentence, not a traceback."""
    try:
        return step()
    except BatchjobsError as error:
        work.error = error
        return ended_by(error)
    except Exception as error:
        work.error = error
        raise


@task(name="plan", task_run_name="plan", cache_policy=NO_CACHE, persist_result=False)
def plan(work: Work) -> State[None]:
    """Check the spec, find the files, cut the shards, take the lock."""
    return _done(work, work.plan)


@task(name="run", task_run_name="run", cache_policy=NO_CACHE, persist_result=False)
def run(work: Work) -> State[None]:
    """Feed the engine until every shard is committed. Goes on where an earlier run stopped."""
    return _done(work, work.run)


@task(name="summarise", task_run_name="summarise", cache_policy=NO_CACHE, persist_result=False)
def summarise(work: Work) -> State[None]:
    """Account for rows, tokens, seconds and money."""
    state = _done(work, work.summarise)
    if work.summary is not None and work.prepared is not None:
        if work.prepared.stored is not None:  # a run with nothing to do changes no file
            publish(work.summary)
        else:
            commits = [*work.prepared.earlier, *(work.figures.commits if work.figures else [])]
            publish(work.summary, commits, draw_report(work.prepared.store))
    return state


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


@contextmanager
def called_by(caller: Caller) -> Iterator[None]:
    """A flow that runs inside tells `caller`."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def carry_out(spec: Callable[[], JobSpec], frozen_input: bool = False, force: bool = False) -> State[Any]:
    """The job, inside a flow run. Returns the flow run's final state; raises only what nobody expected."""
    return work_through(Work(spec, frozen_input, force, _caller.get()))


def work_through(work: Work) -> State[Any]:
    """The same for work whose summary or error is looked at afterwards."""
    expect_failed_states()
    caller = work.caller
    if caller is not None:
        caller.work = work
        if caller.has_ui:
            show_url(caller.reporter)
    with batchjobs_log_in_run(on_console=caller is not None):
        try:
            for step in (plan, run, summarise):
                # Called, not submitted: the core wants the main thread, where signals arrive.
                step(work)
                if work.error is not None:
                    return ended_by(work.error)
                if work.alone:
                    break
        finally:
            work.leave()
            work.tell()
    assert work.summary is not None
    return ended_with(work.summary)


def ended_with(summary: Summary) -> State[Any]:
    """The final state of a flow run that has a summary."""
    return final_state(summary.state, summary.message, summary if summary.state == "completed" else None)


def final_state(state: str, message: str, data: Any = None) -> State[Any]:
    """Prefect's state for one of ours."""
    if state == "completed":
        return Completed(message=message, data=data)
    return Failed(name=_NAMES.get(state), message=message, data=data)


def ended_by(error: Exception) -> State[Any]:
    """The final state of a run that an error ended."""
    code = error.exit_code if isinstance(error, BatchjobsError) else EXIT_CODES["failed"]
    return final_state(next(ours for ours, its in EXIT_CODES.items() if its == code), str(error), error)


def exit_code_of(state: State[Any]) -> int:
    """The exit code that a final state of a flow run stands for."""
    if state.is_completed():
        return EXIT_CODES["completed"]
    if state.is_cancelled():  # what is committed stays, and the same job goes on from there
        return EXIT_CODES["partial"]
    return next((EXIT_CODES[ours] for ours, name in _NAMES.items() if name == state.name), EXIT_CODES["failed"])
