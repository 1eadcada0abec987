#!/usr/bin/env python3
"""Run the demo job for real and show a few of its answers.

Needs `demo/model/` and makes the rest: `demo/data/` (the docstrings of Python's standard library), `demo/job.yaml` and
`demo/results/`. Run again, it resumes or finishes at once. Exit codes are those of `batchjobs run`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
FILES = 4
SHOWN_ROWS = 5
REFUSED = 2

JOB = """\
# The demo's job. Change it as you like: `make demo` keeps your version. What changes the answers makes it another job,
# which wants another output folder or a fresh start: make demo FRESH=1
name: docstring-summaries

input:
  path: data/*.parquet         # relative to this file; a folder, a glob, a list or any fsspec URL
  id_column: id                # `batchjobs verify` checks that it is unique

prompt:                        # Jinja over the row's columns, rendered by the model's own chat template
  system: You write one-line summaries of Python documentation.
  user: "Summarise in one sentence:\\n{{ text[:4000] }}"   # the longest docstrings are cut to fit max_model_len

sampling:                      # vLLM's SamplingParams
  temperature: 0
  max_tokens: 48

model:
  name: model                  # a folder, or a hub name
  max_model_len: 2048

engine:                        # arguments of vllm.LLM
  kind: vllm                   # `echo` is the dry run without a model
  max_num_seqs: 32             # with 32 rows a shard, 256 rows are two windows
  enforce_eager: true          # no compilation: ready sooner, somewhat slower
  kv_cache_memory_bytes: 1073741824   # 1 GiB: about 46,000 tokens of this model

output:
  path: results
  keep_columns: [id, text]     # default: every input column

run:
  shard_rows: 32               # the unit of commit, small so that the demo has several

cost:
  usd_per_hour: 2.5            # price of one replica
"""


class DemoRefusedError(Exception):
    """The demo cannot run as asked; nothing was changed."""


def start_over(demo: Path) -> None:
    """Delete the demo's data and results; the model and the job file stay. Refused while a run holds the results."""
    lock = demo / "results" / "_batchjobs" / "lock"
    if lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DemoRefusedError(f"a run is still writing {demo / 'results'}: stop it first") from None
    for name in ("results", "data"):
        shutil.rmtree(demo / name, ignore_errors=True)


def check_rows(data: Path, rows: int) -> None:
    """Raise DemoRefusedError if an earlier demo wrote a data set of another size than `rows`."""
    existing = sum(pq.read_metadata(path).num_rows for path in data.glob("*.parquet"))
    if data.exists() and existing != rows:
        raise DemoRefusedError(
            f"the earlier demo had {existing} rows: `make demo ROWS={existing}` continues it, "
            f"`make demo FRESH=1 ROWS={rows}` starts over with {rows}"
        )


def write_job(path: Path) -> None:
    """Write the job file if there is none; say so if there is one that was changed."""
    if not path.exists():
        path.write_text(JOB, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != JOB:
        print(f"job: {path} is not the demo's own and is used as it is; delete it to get the original back", flush=True)


def environment(demo: Path) -> dict[str, str]:
    """Return this process's environment, with everything set that keeps the run inside `demo` and off the network."""
    env = {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **os.environ,
    }
    if "PREFECT_API_URL" not in env:
        env["PREFECT_HOME"] = str(demo / "prefect")
        # Prefect writes this file to the user's own home even when PREFECT_HOME is another folder.
        env["PREFECT_SERVER_MEMO_STORE_PATH"] = str(demo / "prefect" / "memo_store.toml")
        # The first start of the embedded server creates its database, which can take longer than Prefect waits.
        env.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
        (demo / "prefect").mkdir(exist_ok=True)
    return env


def run_job(job: Path, env: dict[str, str]) -> int:
    """Run the job in the foreground and return its exit code (128 + n after signal n).

    Ctrl-C reaches the job itself, which stops in good order; this process waits for that.
    """
    command = [str(Path(sys.executable).with_name("batchjobs")), "run", "--prefect", str(job)]
    process = subprocess.Popen(command, env=env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def first_rows(results: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield the first `count` rows of the results, reading no more parts than that takes."""
    for part in sorted(results.glob("*.parquet")):
        rows = pq.read_table(part).slice(0, count).to_pylist()
        yield from rows
        count -= len(rows)
        if count <= 0:
            return


def show(row: dict[str, Any]) -> str:
    """Return a row as question and answer, wrapped for the terminal."""
    answer = row.get("output") if row.get("status") == "ok" else f"[{row.get('error_code')}] {row.get('error')}"
    question = textwrap.shorten(str(row.get("text")), 240, placeholder=" …")
    lines = [f"\n{row.get('id')}", wrapped("Q ", question), wrapped("A ", " ".join(str(answer).split()))]
    return "\n".join(lines)


def wrapped(label: str, text: str) -> str:
    """Return `text` folded to the terminal's width, `label` before the first line."""
    width = min(shutil.get_terminal_size().columns, 100)
    return textwrap.fill(text, width, initial_indent=f"  {label}", subsequent_indent="    ")


def demo_job(demo: Path, rows: int, fresh: bool) -> int:
    """Prepare the folder `demo`, run its job and print a few answers; return the exit code."""
    if fresh:
        start_over(demo)
    check_rows(demo / "data", rows)
    builder = Path(__file__).with_name("build_data.py")
    command = [sys.executable, str(builder), str(demo / "data"), "--rows", str(rows), "--files", str(FILES)]
    if code := subprocess.run(command).returncode:
        return code
    write_job(demo / "job.yaml")
    code = run_job(demo / "job.yaml", environment(demo))
    for row in first_rows(demo / "results", SHOWN_ROWS):
        print(show(row))
    return code


def main() -> int:
    """Parse the command line and run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256, help="rows of the data set (default: 256)")
    parser.add_argument("--fresh", action="store_true", help="delete the demo's data and results first")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo", help="where it works (default: demo/)")
    args = parser.parse_args()
    try:
        return demo_job(args.folder.resolve(), args.rows, args.fresh)
    except DemoRefusedError as error:
        print(f"demo: {error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
