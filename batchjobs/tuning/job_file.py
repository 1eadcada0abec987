"""The job file with the settings to use: the user's own text, its comments included, with only these keys changed.

A whole file, because it can be run and compared as it is: `diff job.yaml job.tuned.yaml` shows the two lines. The
settings change no answer, so it goes on with the output of the job that it was made from.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from batchjobs.errors import SpecError
from batchjobs.settings.in_force import Settings, with_settings
from batchjobs.spec import dump_job, read_job_file
from schemas.job import JobSpec


def free_name(job_file: Path, wanted: Path | None) -> Path:
    """The file to write: the wanted one, or `job.tuned.yaml` beside `job.yaml`. Raises SpecError if it exists."""
    file = wanted or job_file.with_name(f"{job_file.stem}.tuned{job_file.suffix}")
    if file.exists():
        raise SpecError(f"{file} exists already and was not changed; choose another name with --output.")
    return file


def write_tuned(job_file: Path, settings: Settings, file: Path) -> None:
    """Write the user's job file to `file`, with these keys of `engine` set.

    Where the user's own text cannot be kept (an alias in the way, relative paths from another folder), all keys anew.
    """
    wanted = with_settings(read_job_file(job_file), settings)
    if not _edited(job_file.read_text(encoding="utf-8"), settings, file, wanted):
        file.write_text(f"# From {job_file.name}, with settings tuned.\n{dump_job(wanted)}", encoding="utf-8")


def _edited(text: str, settings: Settings, file: Path, wanted: JobSpec) -> bool:
    """Write the text with these keys changed; whether the file then says what is wanted."""
    try:
        for name, value in settings.items():
            text = _with_key(text, name, value)
        file.write_text(text, encoding="utf-8")
        return read_job_file(file) == wanted
    except (SpecError, yaml.YAMLError):
        return False


def _with_key(text: str, name: str, value: object) -> str:
    """The YAML text with `engine.<name>` set, the rest untouched."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    engine = _child(root, "engine")
    if not isinstance(engine, yaml.MappingNode) or not engine.value:
        return f"{text.rstrip()}\n\nengine:\n  {name}: {value}\n"
    old = _child(engine, name)
    if old is not None:
        return f"{text[: old.start_mark.index]}{value}{text[old.end_mark.index :]}"
    first = engine.value[0][0].start_mark
    between = ", " if engine.flow_style else f"\n{' ' * first.column}"
    return f"{text[: first.index]}{name}: {value}{between}{text[first.index :]}"


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)
