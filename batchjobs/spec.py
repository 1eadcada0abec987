"""Read a job file: YAML to `JobSpec`, messages for people, relative paths, and `${ENV}` references."""

from __future__ import annotations

import difflib
import os
import re
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from batchjobs.dates import dated
from batchjobs.errors import SpecError
from schemas.job import JobSpec

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Where `${ENV}` may stand. Prompts, schemas and regular expressions are left alone: there it is text.
_REFERENCE_KEYS = ("input.path", "input.ready", "input.storage_options", "output.path", "output.storage_options",
                   "model.name", "model.tokenizer", "engine.python", "engine.env", "run.state")  # fmt: skip


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win silently; here that is an error."""


def _unique_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
    keys = [loader.construct_object(key) for key in own]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", own[-1].start_mark)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)
# YAML 1.1 reads 16:30 as 16 * 60 + 30, YAML 1.2 as text: here it is a time of day (`run.deadline`).
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_UniqueKeyLoader.yaml_implicit_resolvers = {
    first: [(tag, _INTEGER if tag == "tag:yaml.org,2002:int" else pattern) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_job(path: str | Path, day: date | None = None, default_day: date | None = None) -> JobSpec:
    """The spec in a job file, relative paths made absolute from the file's folder, date variables filled in.

    They stand for `day`, else for the file's own date, else for `default_day`, else for today on this machine. Raises
    SpecError, also if a `day` is asked for and the file has no date variable.
    """
    return dated(read_job_file(path), day, default_day or date.today())


def read_job_file(path: str | Path) -> JobSpec:
    """The same with its date variables as they are written; raises SpecError."""
    file = Path(path)
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise SpecError(f"The job file {file} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"The job file {file} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise SpecError(f"The job file {file}: found {type(data).__name__}; allowed: a mapping with name, input, …")
    return absolute_paths(parse_job(data, where=str(file)), file.parent.resolve())


def parse_job(data: dict[str, Any], where: str = "the job") -> JobSpec:
    """Validate a mapping; raises SpecError that names every key, what was found and what is allowed."""
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        lines = [f"  {_explain(problem)}" for problem in error.errors(include_url=False)]
        raise SpecError(f"{where} is not a valid job:\n" + "\n".join(lines)) from error


def _explain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"] if not _is_union_branch(part))
    found = repr(problem.get("input"))
    found = found if len(found) <= 80 else found[:77] + "..."
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        allowed = _allowed_keys(problem["loc"][:-1])
        close = difflib.get_close_matches(str(problem["loc"][-1]), allowed, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        return f"{key}: unknown key; {hint}allowed: {', '.join(allowed)}"
    if problem["type"] == "missing":
        return f"{key}: missing; it is required"
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: found {found}; allowed: {message[0].lower()}{message[1:]}"


def _is_union_branch(part: Any) -> bool:
    return isinstance(part, str) and (
        part in ("str", "int", "constrained-int") or part.startswith(("list[", "literal["))
    )


def _allowed_keys(location: tuple[Any, ...]) -> list[str]:
    model: Any = JobSpec
    for part in location:
        field = model.model_fields.get(str(part))
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def absolute_paths(job: JobSpec, folder: Path) -> JobSpec:
    """The job with its relative paths made absolute from `folder`. A path that begins with `${` is left alone."""
    data = job.model_dump()
    paths = data["input"]["path"]
    data["input"]["path"] = (
        [_absolute(p, folder) for p in paths] if isinstance(paths, list) else _absolute(paths, folder)
    )
    ready = data["input"]["ready"]
    if ready and ready["marker"] and "/" in ready["marker"]:  # else a name in the input's folder
        ready["marker"] = _absolute(ready["marker"], folder)
    data["output"]["path"] = _absolute(data["output"]["path"], folder)
    if data["run"]["state"]:
        data["run"]["state"] = _absolute(data["run"]["state"], folder)
    if data["model"]:
        for key in ("name", "tokenizer"):  # a hub name has a slash too: only what looks like or is a folder is a path
            data["model"][key] = _absolute_if_there(data["model"][key], folder)
    data["prompt"]["chat_template"] = _absolute_if_there(data["prompt"]["chat_template"], folder)
    data["engine"]["python"] = _absolute_if_there(data["engine"]["python"], folder)
    return JobSpec.model_validate(data)


def _absolute(path: str, folder: Path) -> str:
    if "://" in path or path.startswith("${"):
        return path
    # Not resolve(): links are the user's choice, and an interpreter of a virtual environment is a link.
    return os.path.normpath(folder / os.path.expanduser(path))


def _absolute_if_there(path: str | None, folder: Path) -> str | None:
    if path is None or "\n" in path or len(path) > 1000:
        return path
    explicit = path.startswith(("./", "../", "~/"))
    return _absolute(path, folder) if explicit or (folder / path).exists() else path


def resolve_references(job: JobSpec) -> JobSpec:
    """The job with every `${ENV}` replaced, for use in this process only: never store it. Raises SpecError."""
    data = job.model_dump()
    for key in _REFERENCE_KEYS:
        section, name = key.split(".")
        if data[section] is not None:
            data[section][name] = _resolve(data[section][name], key)
    return JobSpec.model_validate(data)


def _resolve(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _resolve(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, key) for item in value]
    return _REFERENCE.sub(lambda match: _variable(match[1], key), value) if isinstance(value, str) else value


def _variable(name: str, key: str) -> str:
    if name not in os.environ:
        raise SpecError(f"{key}: found ${{{name}}}, but the environment variable {name} is not set where the job runs.")
    return os.environ[name]


def dump_job(job: JobSpec) -> str:
    """The spec as YAML, only what was set, references kept."""
    return yaml.safe_dump(job.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True)


def limited(job: JobSpec, rows: int) -> JobSpec:
    """The same job over the first rows only: a job of its own, with an output of its own beside the whole one's."""
    data = job.model_dump()
    data["name"] = f"{job.name}-limit-{rows}"
    data["input"]["limit"] = min(rows, job.input.limit or rows)
    data["output"]["path"] = f"{job.output.path.rstrip('/')}-limit-{rows}"
    return JobSpec.model_validate(data)
