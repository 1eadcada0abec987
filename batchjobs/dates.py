"""Date variables of a job file: `{{ ds }}` in its paths, so that one file is the job of every night."""

from __future__ import annotations

import re
from datetime import date, timedelta

from batchjobs.errors import SpecError
from schemas.job import JobSpec

_DAY, _NODASH = "%Y-%m-%d", "%Y%m%d"
# Variable -> days before the date that it stands for, and its format. The names are those that Airflow has.
_VARIABLES = {
    "ds": (0, _DAY),
    "ds_nodash": (0, _NODASH),
    "yesterday_ds": (1, _DAY),
    "yesterday_ds_nodash": (1, _NODASH),
    "year": (0, "%Y"),
    "month": (0, "%m"),
    "day": (0, "%d"),
}
_VARIABLE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
# Where they may stand. In prompts, `{{ … }}` is a column; `name` stays, since history goes by it.
_OUTPUT = "output.path"


def dated(job: JobSpec, asked: date | None, default: date) -> JobSpec:
    """The job with its date variables filled in, and `date` set if it has any.

    They stand for the date that was asked for, else the job's own, else `default`. Raises SpecError for a variable that
    does not exist, if every date would write the same output, and if a date is asked for that changes nothing.
    """
    used = [key for key, text in _texts(job) if _VARIABLE.search(text)]
    if not used:
        if asked is not None:
            raise SpecError(
                f"The job {job.name} has no date variable, so the date {asked} would change nothing. Write one into "
                f"input.path and output.path ({_allowed()}), or leave the date out."
            )
        return job
    if _OUTPUT not in used:
        raise SpecError(
            f"output.path: found {job.output.path}, which has no date variable, though {used[0]} has: every date would "
            f"write the same folder; allowed: a path with {{{{ ds }}}} or another of {_allowed()}"
        )
    day = asked or (date.fromisoformat(job.date) if job.date is not None else default)
    data = job.model_dump()
    data["date"] = day.isoformat()
    paths = job.input.path
    data["input"]["path"] = (
        [_filled(path, day, "input.path") for path in paths]
        if isinstance(paths, list)
        else _filled(paths, day, "input.path")
    )
    if job.input.filter is not None:
        data["input"]["filter"] = _filled(job.input.filter, day, "input.filter")
    if job.input.ready is not None and job.input.ready.marker is not None:
        data["input"]["ready"]["marker"] = _filled(job.input.ready.marker, day, "input.ready.marker")
    data["output"]["path"] = _filled(job.output.path, day, _OUTPUT)
    return JobSpec.model_validate(data)


def refuse_unfilled(job: JobSpec) -> None:
    """Raise SpecError for a job that still has date variables: a spec that came another way than from a job file."""
    for key, text in _texts(job):
        if found := _VARIABLE.search(text):
            raise SpecError(f"{key}: found {found[0]}; allowed: only in a job file, whose date variables are filled in")


def _texts(job: JobSpec) -> list[tuple[str, str]]:
    """Key and text of everything that may have variables."""
    paths = job.input.path if isinstance(job.input.path, list) else [job.input.path]
    marker = job.input.ready.marker if job.input.ready is not None else None
    return [
        *(("input.path", path) for path in paths),
        ("input.filter", job.input.filter or ""),
        ("input.ready.marker", marker or ""),
        (_OUTPUT, job.output.path),
    ]


def _filled(text: str, day: date, key: str) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] not in _VARIABLES:
            raise SpecError(f"{key}: found {found[0]}; allowed: {_allowed()}")
        days, form = _VARIABLES[found[1]]
        return (day - timedelta(days=days)).strftime(form)

    return _VARIABLE.sub(value, text)


def _allowed() -> str:
    return ", ".join(f"{{{{ {name} }}}}" for name in _VARIABLES)


def parse_date(text: str, option: str = "--date") -> date:
    """A date as people write it, such as 2026-11-28; raises SpecError that names the option."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{option}: found {text!r}; allowed: a date such as 2026-11-28") from None
