"""Every order, with and without deduplication, on one real engine: the same rows with the same text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchjobs.replica.feed import Feeder
from batchjobs.spec import parse_job
from bench.wired import assignment_of, run_wired
from schemas.job import Deduplicate, Order
from scripts.build_model import build_tiny_model

pytestmark = pytest.mark.engine

DEMO_MODEL = Path("demo/model").resolve()
KV_BLOCKS = 24  # of 128 tokens on CPU: the documents together do not fit
DOCUMENTS, QUESTIONS = 12, 5


def questions_about_documents() -> pa.Table:
    """Each document, of some 300 tokens, with each question once, and every sixth row a second time; shuffled."""
    documents = [" ".join(f"item {document} of list {n}" for n in range(50)) for document in range(DOCUMENTS)]
    texts = [f"{document} Question {question}?" for document in documents for question in range(QUESTIONS)]
    texts += texts[::6]
    random.Random(0).shuffle(texts)
    return pa.table({"text": texts})


class Replica:
    """One engine, and our code around it once for each run."""

    def __init__(self, folder: Path) -> None:
        from batchjobs.engines.vllm import VllmEngine

        self._folder = folder
        build_tiny_model(folder / "model", tokenizer_from=DEMO_MODEL)
        (folder / "data").mkdir()
        pq.write_table(questions_about_documents(), folder / "data" / "a.parquet")
        self.engine = VllmEngine(self._job("input", "never"))

    def _job(self, order: Order, deduplicate: Deduplicate) -> Any:
        engine = {"max_num_seqs": 4, "enforce_eager": True, "kv_cache_memory_bytes": 2**28}
        return parse_job({
            "name": "real",
            "input": {"path": str(self._folder / "data")},
            "prompt": {"column": "text"},
            "sampling": {"temperature": 0, "max_tokens": 16},
            "model": {"name": str(self._folder / "model"), "max_model_len": 1024},
            "engine": {**engine, "extra": {"num_gpu_blocks_override": KV_BLOCKS}},
            "output": {"path": str(self._folder / f"{order}-{deduplicate}")},
            "run": {"shard_rows": 36, "order": order, "deduplicate": deduplicate},
        })  # fmt: skip

    def run(self, order: Order, deduplicate: Deduplicate) -> tuple[pa.Table, Feeder, int]:
        """The results, the feeder that made them, and the prompt tokens that came from the prefix cache."""
        job = self._job(order, deduplicate)
        self.engine.llm.reset_prefix_cache()
        before = self.engine.stats().prefix_cache_hits or 0
        feeder, _ = run_wired(assignment_of(job), self.engine)
        hits = (self.engine.stats().prefix_cache_hits or 0) - before
        return pq.read_table(job.output.path), feeder, hits


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        replica = Replica(tmp_path_factory.mktemp("replica"))
        yield replica
        replica.engine.close()


def test_every_order_with_and_without_deduplication_gives_the_same_text(replica: Replica) -> None:
    expected, _, shuffled_hits = replica.run("input", "never")
    assert all(expected["output"].to_pylist())
    hits = {}
    for order in get_args(Order):
        for deduplicate in ("never", "auto"):
            if (order, deduplicate) != ("input", "never"):
                found, feeder, hits[order, deduplicate] = replica.run(order, deduplicate)
                for column in ("text", "row", "output", "status", "finish_reason", "output_tokens", "request_hash"):
                    assert found[column].equals(expected[column]), (order, deduplicate, column)
                copies = DOCUMENTS * QUESTIONS // 6 if deduplicate == "auto" else 0
                assert feeder._collector.tally.deduplicated == copies
    print("prompt tokens from the prefix cache:", {("input", "never"): shuffled_hits, **hits})
    whole_blocks = 3 * 128  # of a document: computed for its first question, found for each other one
    assert hits["prefix", "auto"] == DOCUMENTS * (QUESTIONS - 1) * whole_blocks
    assert hits["input", "auto"] < 0.8 * hits["prefix", "auto"]
    assert hits["auto", "auto"] == hits["prefix", "auto"], "auto saw that the documents do not fit the cache"
