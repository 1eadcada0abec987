"""What lies where in an output folder. Imports little, because `status` is to be quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchjobs.errors import OutputError
from batchjobs.storage.store import Store

if TYPE_CHECKING:
    from schemas.job import JobSpec
    from schemas.plan import Plan
    from schemas.summary import Summary

SUCCESS = "_SUCCESS"  # only in state `completed`
OURS = "_batchjobs"
SPEC = f"{OURS}/spec.yaml"
PLAN = f"{OURS}/plan.json"
SUMMARY = f"{OURS}/summary.json"
METRICS = f"{OURS}/summary.prom"  # the same numbers for Prometheus
PROGRESS = f"{OURS}/progress.json"  # disposable
WAITING = f"{OURS}/waiting.json"  # for what a run waits that has the lock; disposable
LOCK = f"{OURS}/lock"  # who runs
WRITERS = f"{OURS}/writers.lock"  # whoever may still write
REPORT = f"{OURS}/report.html"  # made on demand from the rest
LEASE = f"{OURS}/lease"
JOURNAL = f"{OURS}/journal"
ATTEMPTS = f"{OURS}/attempts"
LOGS = f"{OURS}/logs"


def read_plan(store: Store) -> Plan | None:
    """The plan frozen in an output folder, or None."""
    from schemas.plan import Plan

    data = store.read(PLAN)
    try:
        return None if data is None else Plan.model_validate_json(data)
    except ValueError as error:
        raise OutputError(
            f"{store.url}/{PLAN} is damaged, and without it nobody knows what the parts are. Nothing was changed; "
            "use another output.path, or remove the output to start over."
        ) from error


def read_job(store: Store) -> JobSpec:
    """The job that an output folder belongs to, with its output where the folder is now."""
    import yaml

    from batchjobs.spec import parse_job

    data = store.read(SPEC)
    if data is None:
        raise not_ours(store)
    try:
        spec = yaml.safe_load(data)
        spec["output"]["path"] = store.url
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise OutputError(f"{store.url}/{SPEC} cannot be read: {error}") from error
    return parse_job(spec, where=f"{store.url}/{SPEC}")


def read_summary(store: Store) -> Summary | None:
    """The latest summary; None if there is none or it is damaged, since a run makes it anew."""
    from schemas.summary import Summary

    data = store.read(SUMMARY)
    try:
        return None if data is None else Summary.model_validate_json(data)
    except ValueError:
        return None


def not_ours(store: Store) -> OutputError:
    """The error for a folder without a plan."""
    return OutputError(f"{store.url} is not an output of batchjobs: it has no {PLAN}.")
