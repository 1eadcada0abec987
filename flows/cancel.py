"""End a run of a job: through Prefect if a worker runs it, else by a signal to the process that has its output."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled, Cancelling

from batchjobs.errors import BatchjobsError, OutputError, Refused, SpecError
from batchjobs.leftovers import mark_of, marked
from batchjobs.spec import load_job, resolve_references
from batchjobs.status import read_status
from batchjobs.storage.holder import holder_of
from batchjobs.storage.lease import described as described_holder
from batchjobs.storage.output import LOCK
from batchjobs.storage.store import Store, open_store
from flows.api import api_answers
from flows.runs import described, open_run_of, open_runs, run_by_id
from schemas.job import JobSpec

_LOOK_S = 0.5  # between looks
_WAIT_S = 180.0  # a worker that has lost its event stream looks every 2 minutes; then 30 s pass before Prefect kills
_GONE_S = 15.0  # for the last process, when the run is over


@dataclass(frozen=True)
class Target:
    """What somebody wants to end: a flow run, or else only an output."""

    run: FlowRun | None
    output: Store | None  # None: not to be seen from here


def find(what: str) -> Target:
    """The run that is meant by an id, a run's name, an output path or a job file; raises Refused."""
    knows_prefect = api_answers()
    with suppress(ValueError):
        wanted = UUID(what)
        run = run_by_id(wanted) if knows_prefect else None
        if run is None:
            raise Refused(f"No flow run has the id {what}; nothing was cancelled.{_unasked(knows_prefect)}")
        return Target(run, _output_of(run))
    named = [run for run in open_runs() if run.name == what] if knows_prefect else []
    if len(named) > 1:
        ids = "\n".join(described(run) for run in named)
        raise Refused(f"{len(named)} runs are called {what}; nothing was cancelled. Name one by its id:\n{ids}")
    if named:
        return Target(named[0], _output_of(named[0]))
    if what.endswith((".yaml", ".yml")):
        job = load_job(what)
        path, output = job.output.path, _seen(job)
    else:
        path = what if "://" in what else os.path.abspath(what)
        output = open_store(path)
    target = Target(open_run_of(path) if knows_prefect else None, output)
    if target.run is None and _holder(target) is None:
        raise Refused(
            f"{what} is no run, and no output that a run has; nothing was cancelled.{_unasked(knows_prefect)}"
        )
    return target


def _unasked(knows_prefect: bool) -> str:
    return "" if knows_prefect else " The Prefect API was not asked: none is configured, or it does not answer."


def _output_of(run: FlowRun) -> Store | None:
    with suppress(KeyError, ValueError):
        return _seen(JobSpec.model_validate(run.parameters["job"]))
    return None


def _seen(job: JobSpec) -> Store | None:
    """The job's output as seen from here; None if it cannot be."""
    with suppress(SpecError, OSError, ImportError):
        output = resolve_references(job).output
        return open_store(output.path, output.storage_options)
    return None


def cancel(target: Target, wait_s: float = _WAIT_S) -> str:
    """Ask for the end and, if `wait_s` is not 0, wait for it. A sentence on what came of it.

    Raises Refused if there is nobody to ask, BatchjobsError if the run is not over in time.
    """
    run = target.run
    if run is None:
        return _by_signal(target, wait_s)
    if run.state is not None and run.state.is_final():
        return f"{described(run)} is over already: {run.state.message or run.state_name}"
    if run.deployment_id is None:  # a `batchjobs run`, which no worker can reach
        return _by_signal(target, wait_s) if _gets_holder(target) else _orphaned(target, run)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Cancelling(message="batchjobs cancel"))
    if not wait_s:
        return f"{run.name} was asked to stop: {described(_again(run))}"
    return _waited_for(target, run, wait_s)


def _again(run: FlowRun) -> FlowRun:
    return run_by_id(run.id) or run


def _holder(target: Target) -> dict[str, object] | None:
    return holder_of(target.output) if target.output is not None else None


def _gets_holder(target: Target) -> bool:
    """Whether somebody has the output; a run that has just begun takes it in a moment."""
    deadline = time.monotonic() + _GONE_S
    while _holder(target) is None:
        if target.output is None or time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _waited_for(target: Target, run: FlowRun, wait_s: float) -> str:
    deadline = time.monotonic() + wait_s
    while not ((now := _again(run)).state is not None and now.state.is_final()):
        if time.monotonic() > deadline:
            return _orphaned(target, now)
        time.sleep(_LOOK_S)
    _wait_until_gone(target)
    return f"{now.name} is over: {now.state_name}. {_gone(target)}To go on: prefect flow-run retry {now.id}"


def _orphaned(target: Target, run: FlowRun) -> str:
    """No worker has told of an end. If the output is seen to be free, there is nothing left to end."""
    if target.output is None or target.output.read(LOCK) is None or _holder(target) is not None:
        raise BatchjobsError(
            f"{described(run)} is not over yet, and its output is not seen to be free from here. Ask again on the "
            "machine that runs it; the log of its worker there says more."
        )
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Cancelled(message="No worker answered, and nobody has the output."), True)
    return f"{run.name}: no worker answered, and nobody has its output, so the run is marked as cancelled."


def _by_signal(target: Target, wait_s: float) -> str:
    store, holder = target.output, _holder(target)
    assert store is not None
    if holder is None:
        return f"{store.url} is free already."
    if holder.get("host") != socket.gethostname() or not isinstance(pid := holder.get("pid"), int):
        raise Refused(
            f"{store.url} is in use by {described_holder(holder)}, which no signal from here reaches. On that machine: "
            f"kill -TERM {holder.get('pid', 'PID')}. Nothing was changed."
        )
    os.kill(pid, signal.SIGTERM)
    if not wait_s:
        return f"Process {pid} was asked to stop."
    deadline = time.monotonic() + wait_s
    while holder_of(store) is not None:
        if time.monotonic() > deadline:
            raise BatchjobsError(f"Process {pid} was asked to stop {wait_s:.0f} s ago and has not left yet.")
        time.sleep(_LOOK_S)
    _wait_until_gone(target)
    return f"Process {pid} has stopped. {_gone(target)}To go on: the same command as before."


def _wait_until_gone(target: Target) -> None:
    deadline = time.monotonic() + _GONE_S
    while target.output is not None and (left := marked(mark_of(target.output.url))):
        if time.monotonic() > deadline:
            raise BatchjobsError(
                f"The run is over, but processes {left} of it are still there; the next run ends them."
            )
        time.sleep(_LOOK_S)


def _gone(target: Target) -> str:
    """How far the output is, and that its processes are gone, if that is to be seen from here."""
    if target.output is None:
        return ""

    try:
        shards = read_status(target.output.url)["shards"]
    except (OutputError, OSError):
        return ""
    return f"{shards['committed']:,} of {shards['total']:,} shards are committed; no process of it is left here. "
