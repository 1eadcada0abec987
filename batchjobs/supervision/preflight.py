"""Before anything is written: is there a vLLM to run the job, and does it know the names that only it can know?

Imports no vLLM; asks child processes of the replicas' interpreter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

from batchjobs import __version__
from batchjobs.errors import Refused, SpecError
from batchjobs.rows.sampling import effective
from schemas.job import JobSpec

_PROBE = """
import importlib.util, json
found = {name: importlib.util.find_spec(name) is not None for name in ("batchjobs", "vllm")}
if found["batchjobs"]:
    import batchjobs
    found["version"] = batchjobs.__version__
print(json.dumps(found))
"""
_PROBE_S = 30.0  # a start of Python and no import of weight: some 50 ms
_CHECK_S = 180.0  # imports vLLM: several seconds, more from a cold disk
# Values of these are names that only vLLM knows, like the names in `extra`.
_MODEL_NAMES = {"dtype", "quantization", "kv_cache_dtype", "reasoning_parser"}
# Every vLLM knows these (`vllm.config.ModelDType`): not worth an import of several seconds.
_COMMON = {"dtype": {"auto", "half", "float16", "bfloat16", "float", "float32"}, "kv_cache_dtype": {"auto", "fp8"}}


def check_engine(spec: JobSpec, row_sampling_names: list[str]) -> None:
    """Check the replicas' interpreter and, where the spec says anything that only vLLM knows, ask vLLM.

    `row_sampling_names` are the fields of the per-row column that the spec does not declare. Raises SpecError naming
    each key, what was found and what is allowed; Refused if vLLM or batchjobs is missing there. The echo engine needs
    no child: it knows no extra names.
    """
    if spec.engine.kind == "echo":
        _refuse_extras_of_echo(spec, row_sampling_names)
        if shutil.which(_python(spec)) is None:
            raise SpecError(f"engine.python: found {_python(spec)}, which cannot be run; allowed: a Python")
        return
    _check_interpreter(spec)
    question = _question(spec, row_sampling_names)
    if question is not None:
        _ask_vllm(spec, question)


def _refuse_extras_of_echo(spec: JobSpec, row_sampling_names: list[str]) -> None:
    names = [f"engine.extra.{name}" for name in spec.engine.extra]
    names += [f"sampling.extra.{name}" for name in spec.sampling.extra]
    names += [f"sampling.per_row_column.{name}" for name in row_sampling_names]
    if names:
        raise SpecError("\n".join(f"{name}: the echo engine knows no such name; allowed: none" for name in names))


def _check_interpreter(spec: JobSpec) -> None:
    python = _python(spec)
    done = _run(spec, ["-c", _PROBE], "", _PROBE_S)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        reason = _last_line(done.stderr) or f"exit code {done.returncode}"
        raise SpecError(f"engine.python: found {python}, which does not run ({reason}); allowed: a Python") from None
    if not found["batchjobs"]:
        raise Refused(f"{python} has no batchjobs. Install it there: {_pip(python)}")
    if not found["vllm"]:
        raise Refused(f"{python} has no vLLM. Install it there: {_pip(python)}")
    if found["version"] != __version__:
        raise Refused(
            f"{python} has batchjobs {found['version']}, but this is {__version__}; both must be the same. "
            f"Install it there: {python} -m pip install batchjobs=={__version__}"
        )


def _pip(python: str) -> str:
    return f"{python} -m pip install 'batchjobs[gpu]' (or 'batchjobs[cpu]' on a machine without a GPU)"


def _question(spec: JobSpec, row_sampling_names: list[str]) -> dict[str, Any] | None:
    """What to ask vLLM; None if the spec says nothing that only vLLM knows."""
    assert spec.model is not None
    named = spec.model.model_dump(exclude_none=True, include=_MODEL_NAMES)
    llm = {name: value for name, value in named.items() if value not in _COMMON.get(name, ())} | spec.engine.extra
    sampling = spec.sampling
    if not (llm or sampling.extra or sampling.structured_outputs or row_sampling_names):
        return None
    return {"llm": llm, "sampling": effective(sampling), "names": row_sampling_names}


def _ask_vllm(spec: JobSpec, question: dict[str, Any]) -> None:
    done = _run(spec, ["-m", "batchjobs.engines.check"], json.dumps(question), _CHECK_S)
    if done.returncode != 0:
        raise Refused(
            f"The names that only vLLM knows could not be checked: {_last_line(done.stderr) or done.returncode}. "
            f"See what {_python(spec)} -c 'import vllm' says."
        )
    problems = json.loads(done.stdout)
    if problems:
        raise SpecError("\n".join(f"{p['key']}: found {p['found']}; allowed: {p['allowed']}" for p in problems))


def _python(spec: JobSpec) -> str:
    return spec.engine.python or sys.executable


def _run(spec: JobSpec, arguments: list[str], text: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run the replicas' interpreter as a replica would be: same environment, a session of its own (no Ctrl-C)."""
    python = _python(spec)
    try:
        return subprocess.run(
            [python, *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env={**os.environ, **spec.engine.env},
            start_new_session=True,
        )
    except OSError as error:
        raise SpecError(f"engine.python: found {python}; allowed: a Python interpreter ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise Refused(f"{python} gave no answer within {timeout_s:.0f} seconds.") from error


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
