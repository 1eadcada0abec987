"""Ray Data LLM, with its defaults and tuned."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.peers.chat import write_messages
from bench.peers.environment import python
from bench.running import Running

_TUNED = {"batch_size": 16, "max_concurrent_batches": 32}  # as in Ray's own measurements: 512 rows in flight


def _start(folder: Path, job: dict[str, Any], tuned: bool) -> Running:
    """Defaults leave batches and slots to Ray and vLLM; memory, context and model are the job's in both."""
    slots = {"max_num_seqs": job["engine"]["max_num_seqs"]} if tuned else {}
    settings = {
        "model": job["model"]["name"],
        "sampling": job["sampling"],
        "engine": {
            "max_model_len": job["model"]["max_model_len"],
            "enforce_eager": True,
            "kv_cache_memory_bytes": job["engine"]["kv_cache_memory_bytes"],
            **slots,
        },
        "processor": _TUNED if tuned else {},
    }
    rows = write_messages(folder, job)
    main = Path(__file__).with_name("ray_llm_main.py")
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": ""}
    return Running(python(), main, rows, folder / "ray", json.dumps(settings), **environment)


start_tuned = partial(_start, tuned=True)
start_default = partial(_start, tuned=False)


def outcome(folder: Path) -> dict[str, int]:
    """Rows and tokens of its output."""
    found = pq.read_table(folder / "ray", columns=["num_input_tokens", "num_generated_tokens"]).to_pydict()
    return {
        "rows": len(found["num_input_tokens"]),
        "prompt_tokens": sum(found["num_input_tokens"]),
        "output_tokens": sum(found["num_generated_tokens"]),
    }
