"""The ceiling to compare with: one `LLM.generate` over all prompts of a job, in a process of its own.

Usage: python -m bench.generate_once job.yaml result.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams

from batchjobs.engines.base import Request
from batchjobs.engines.vllm import llm_arguments
from batchjobs.plan import make_plan, read_dataset
from batchjobs.render import rendered
from batchjobs.spec import load_job, resolve_references


def requests_of(job_file: str) -> tuple[dict[str, Any], list[Request]]:
    """Arguments of the LLM, and every request of the job in input order."""
    job = load_job(job_file)
    resolved = resolve_references(job)
    dataset = read_dataset(resolved)
    plan = make_plan(job, resolved, dataset)
    made = rendered(resolved, plan, dataset, dataset.shards)
    return llm_arguments(resolved), [request for request in made if isinstance(request, Request)]


def main() -> None:
    """Generate once and tell how long it took."""
    arguments, requests = requests_of(sys.argv[1])
    llm = LLM(**{**arguments, "disable_log_stats": True})  # as people call it
    params = [SamplingParams(**request.sampling) for request in requests]
    began = time.monotonic()
    outputs = llm.generate([{"prompt_token_ids": r.token_ids} for r in requests], params, use_tqdm=False)
    seconds = time.monotonic() - began
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    result = {"rows": len(outputs), "output_tokens": tokens, "seconds": seconds}
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
