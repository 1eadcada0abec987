"""What the replica sees when vLLM's EngineCore is killed: an exception, never an endless wait."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchjobs.engines.base import Request
from schemas.job import JobSpec
from scripts.build_model import build_tiny_model

pytestmark = pytest.mark.engine

DEMO_MODEL = Path(__file__).parents[2] / "demo" / "model"
PROMPT = list(range(3000, 3100))


def alive_children() -> set[int]:
    """Process ids of our descendants that still run, without Python's resource tracker, which outlives engines."""
    children = psutil.Process().children(recursive=True)
    running = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return {child.pid for child in running if "resource_tracker" not in " ".join(child.cmdline())}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        from batchjobs.engines.vllm import VllmEngine

        build_tiny_model(tmp_path / "tiny", tokenizer_from=DEMO_MODEL)
        engine = VllmEngine(
            JobSpec.model_validate(
                {
                    "name": "death",
                    "input": {"path": "unused"},
                    "prompt": {"column": "unused"},
                    "sampling": {"max_tokens": 8},
                    "model": {"name": str(tmp_path / "tiny"), "max_model_len": 4096},
                    "engine": {"enforce_eager": True, "kv_cache_memory_bytes": 256 << 20, "max_num_seqs": 8},
                    "output": {"path": "unused"},
                }
            )
        )
        yield engine
        engine.close()


def test_a_killed_engine_core_makes_step_raise_within_seconds_and_close_leaves_no_process(engine: Any) -> None:
    from vllm.v1.engine.exceptions import EngineDeadError

    for row in range(8):
        engine.submit(Request(row, PROMPT, 3000, {"temperature": 0, "ignore_eos": True}))
    engine.step()
    assert alive_children()
    raised: queue.Queue[Exception] = queue.Queue()

    def step_until_it_raises() -> None:
        try:
            while True:
                engine.step()
        except Exception as error:
            raised.put(error)

    # A thread, so that a hang would fail this test instead of stopping it.
    threading.Thread(target=step_until_it_raises, daemon=True).start()
    (core,) = engine.llm.llm_engine.engine_core.resources.engine_manager.processes
    os.kill(core.pid, signal.SIGKILL)
    assert isinstance(raised.get(timeout=15), EngineDeadError)

    with pytest.raises(EngineDeadError):  # not RequestRejected: the row is not to blame
        engine.submit(Request(9, PROMPT, 8))
    engine.close()
    deadline = time.monotonic() + 15
    while alive_children() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive_children()
