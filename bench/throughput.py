"""Output tokens/s over the generating window, against one `LLM.generate` over the same prompts: at least 0.95 of it."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench.running import batchjobs, measured
from scripts.build_data import build_data

_MODEL = Path("demo/model")
_SHARDS = 8


def measure(rows: int, pairs: int) -> None:
    """Print each alternating pair, and the median of the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(Path(folder), rows)
        ratios = []
        for number in range(pairs):
            ours, theirs = run_pair(job, ours_first=number % 2 == 0)
            ratios.append(ours / theirs)
            print(f"pair {number + 1}: {ours:.1f} output tokens/s, LLM.generate {theirs:.1f}, ratio {ratios[-1]:.3f}")
        print(
            f"median ratio over {pairs} pairs of {rows} docstrings in {_SHARDS} shards: {statistics.median(ratios):.3f}"
        )


def run_pair(job: Path, ours_first: bool) -> tuple[float, float]:
    """Output tokens/s of batchjobs and of one LLM.generate, never at the same time."""
    if ours_first:
        return run_ours(job), run_theirs(job)
    theirs = run_theirs(job)
    return run_ours(job), theirs


def run_ours(job: Path) -> float:
    """One fresh run of the job."""
    shutil.rmtree(job.parent / "out", ignore_errors=True)
    summary = json.loads(batchjobs("run", "--no-prefect", "--json", job).stdout)
    return float(summary["rate"]["output_tokens_per_s"])


def run_theirs(job: Path) -> float:
    """One LLM.generate over everything, in a process of its own."""
    file = job.parent / "generated.json"
    measured(sys.executable, "-m", "bench.generate_once", str(job), str(file))
    result = json.loads(file.read_text())
    return float(result["output_tokens"] / result["seconds"])


def write_job(folder: Path, rows: int) -> Path:
    """The docstring job, as the demo has it."""
    build_data(folder / "data", rows)
    file = folder / "job.yaml"
    file.write_text(f"""\
name: throughput
input: {{path: data}}
prompt:
  system: You write one-line summaries of Python documentation.
  user: "Summarise in one sentence:\\n{{{{ text[:4000] }}}}"
sampling: {{temperature: 0, max_tokens: 48}}
model: {{name: {_MODEL.resolve()}, max_model_len: 2048}}
engine: {{kind: vllm, max_num_seqs: 64, enforce_eager: true, kv_cache_memory_bytes: 1073741824}}
output: {{path: out}}
run: {{shard_rows: {rows // _SHARDS}}}
""")
    return file
