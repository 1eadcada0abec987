"""Ray Data LLM from Parquet to Parquet. Runs in the peers' environment, so it imports nothing of batchjobs.

Usage: ray_llm_main.py ROWS.parquet OUTPUT SETTINGS      (SETTINGS: JSON, made by bench.peers.ray_llm)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

_KEPT = ("row", "generated_text", "num_input_tokens", "num_generated_tokens")


def main() -> None:
    """Read, answer, write."""
    rows, output, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    # Logical resources: its actors ask for a GPU and for more cores than there are, and Ray does not look.
    ray.init(num_cpus=8, num_gpus=1, include_dashboard=False, log_to_driver=False)
    config = vLLMEngineProcessorConfig(
        model_source=settings["model"], engine_kwargs=settings["engine"], concurrency=1, **settings["processor"]
    )

    def before(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "messages": json.loads(row["messages"]), "sampling_params": settings["sampling"]}

    def after(row: dict[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in _KEPT}

    processor = build_processor(config, preprocess=before, postprocess=after)
    processor(ray.data.read_parquet(rows)).write_parquet(output)


if __name__ == "__main__":
    main()
