"""`vllm run-batch`: OpenAI's JSONL in and out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.peers.chat import all_messages
from bench.running import Running

_DONE = re.compile(r"Running batch: .*?\| (\d+)/\d+")


def write_requests(folder: Path, job: dict[str, Any]) -> Path:
    """The rows of a job folder as a file of requests."""
    model, sampling = job["model"]["name"], job["sampling"]
    file = folder / "requests.jsonl"
    with file.open("w") as lines:
        for number, messages in enumerate(all_messages(folder, job)):
            body = {"model": model, "messages": messages, **sampling}
            request = {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
            lines.write(json.dumps(request) + "\n")
    return file


def start(folder: Path, job: dict[str, Any]) -> Running:
    """The same model, context, slots and KV cache as the job has."""
    engine = job["engine"]
    return Running(
        sys.executable, "-m", "vllm.entrypoints.openai.run_batch",
        "-i", write_requests(folder, job), "-o", folder / "answers.jsonl",
        "--model", job["model"]["name"], "--max-model-len", str(job["model"]["max_model_len"]),
        "--max-num-seqs", str(engine["max_num_seqs"]), "--enforce-eager",
        "--kv-cache-memory-bytes", str(engine["kv_cache_memory_bytes"]),
    )  # fmt: skip


def outcome(folder: Path) -> dict[str, int]:
    """Rows and tokens of its output; zeros without one."""
    file = folder / "answers.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    usages = [line["response"]["body"]["usage"] for line in lines if not line["error"]]
    return {
        "rows": len(usages),
        "prompt_tokens": sum(usage["prompt_tokens"] for usage in usages),
        "output_tokens": sum(usage["completion_tokens"] for usage in usages),
    }


def rows_done(printed: str) -> int:
    """Rows that its progress bar says are done."""
    return max((int(found) for found in _DONE.findall(printed)), default=0)
