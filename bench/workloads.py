"""The rows that engines race on, and the job over them. Sizes are for two cores: a round takes 10 to 30 seconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from scripts.build_data import docstring_rows

MODEL = Path("demo/model").resolve()
MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 64
SHARDS = 8
SYSTEM = "You write one-line summaries of Python documentation."
INSTRUCTION = "Summarise in one sentence:\n"
SUMMARISE = {"system": SYSTEM, "user": INSTRUCTION + "{{ text[:4000] }}"}

_DUPLICATES_IN = 5  # of so many rows, one is a copy
_QUESTIONS = (
    "What is this text about?",
    "Which names does it mention?",
    "Who would read it, and why?",
    "Give it a title.",
    "What does it warn of?",
    "Name one fact it states.",
)
_DOCUMENT_CHARS = 2600  # about 700 tokens: five whole blocks of 128 tokens of KV cache, and a rest


@dataclass(frozen=True)
class Workload:
    """A kind of rows, with the job over them."""

    name: str
    title: str
    rows: int
    build: Callable[[int], pa.Table]
    max_tokens: int
    prompt: dict[str, str] = field(default_factory=lambda: SUMMARISE)
    sampling: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    slots: int = MAX_NUM_SEQS
    kv_cache_bytes: int = 2**30  # 46,592 tokens of the demo model

    def job(self, rows: int) -> dict[str, Any]:
        """The job spec, in eight shards; its paths are relative to the job file."""
        return {
            "name": self.name,
            "input": {"path": "data"},
            "prompt": self.prompt,
            "sampling": {"temperature": 0, "max_tokens": self.max_tokens, **self.sampling},
            "model": {"name": str(MODEL), "max_model_len": MAX_MODEL_LEN, **self.model},
            "engine": {"kind": "vllm", "max_num_seqs": self.slots, "enforce_eager": True,
                       "kv_cache_memory_bytes": self.kv_cache_bytes},
            "output": {"path": "out"},
            "run": {"shard_rows": max(1, rows // SHARDS), "max_error_rate": 1.0, **self.run},
        }  # fmt: skip

    def write(self, folder: Path, rows: int | None = None) -> Path:
        """Write data and job file into an empty folder; returns the job file."""
        table = self.build(rows or self.rows)
        (folder / "data").mkdir()
        pq.write_table(table, folder / "data" / "rows.parquet")
        return write_job(folder, self.job(table.num_rows))


def write_job(folder: Path, job: dict[str, Any]) -> Path:
    """Write `job.yaml`."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job, sort_keys=False))
    return file


@cache
def _docstrings() -> Sequence[str]:
    return [row["text"] for row in docstring_rows()]


def uniform(rows: int) -> pa.Table:
    """Sums to explain: prompts of one length, and answers of one length by `ignore_eos`."""
    return pa.table({"text": [f"Explain how to add {1000 + n} and {9999 - n % 5000}." for n in range(rows)]})


def docstrings(rows: int) -> pa.Table:
    """The demo's rows: real text with a real skew of lengths."""
    return pa.table({"text": _docstrings()[:rows]})


def prefixes(rows: int) -> pa.Table:
    """Documents that are asked six questions each, in random order; distinct from their first block on."""
    texts = cycle(_docstrings())
    asked = []
    for _ in range(max(1, rows // len(_QUESTIONS))):
        document = ""
        while len(document) < _DOCUMENT_CHARS:
            document += next(texts) + "\n\n"
        asked += [{"document": document[:_DOCUMENT_CHARS], "question": question} for question in _QUESTIONS]
    random.Random(1).shuffle(asked)
    return pa.Table.from_pylist(asked)


def duplicates(rows: int) -> pa.Table:
    """Exactly one row in five is a copy of another one of its shard, in random places of it.

    Rows are rounded down so that each shard can be so.
    """
    groups = max(1, rows // (SHARDS * _DUPLICATES_IN))
    texts = iter([text[:600] for text in dict.fromkeys(t[:600] for t in _docstrings())])
    chance, found = random.Random(2), list[str]()
    for _ in range(SHARDS):
        distinct = [next(texts) for _ in range(groups * (_DUPLICATES_IN - 1))]
        shard = distinct + chance.sample(distinct, groups)
        chance.shuffle(shard)
        found += shard
    return pa.table({"text": found})


def long_tail(rows: int) -> pa.Table:
    """Most answers are 8 to 16 tokens long, one in fifty 200: by each row's own `max_tokens`, and `ignore_eos`."""
    chance = random.Random(3)
    lengths = [200 if n % 50 == 25 else chance.randint(8, 16) for n in range(rows)]
    chance.shuffle(lengths)
    own = pa.array([{"max_tokens": n} for n in lengths], pa.struct([("max_tokens", pa.int32())]))
    return pa.table({"text": [text[:400] for text in _docstrings()[:rows]], "sampling": own})


def bad_rows(rows: int) -> pa.Table:
    """One row in a hundred cannot be answered: null, empty, or longer than the context."""
    texts: list[str | None] = [text[:600] for text in _docstrings()[:rows]]
    bad = cycle(["far too long " * MAX_MODEL_LEN, None, ""])
    for place in random.Random(4).sample(range(rows), max(1, rows // 100)):
        texts[place] = next(bad)
    return pa.table({"text": pa.array(texts, pa.string())})


def shared_tokens(prompts: Iterable[Sequence[Hashable]], block: int) -> int:
    """Tokens of the distinct whole blocks that two prompts or more begin with: the working set of a prefix cache."""
    seen: dict[tuple[Hashable, ...], int] = {}
    for prompt in prompts:
        for end in range(block, len(prompt) + 1, block):
            start = tuple(prompt[:end])
            seen[start] = seen.get(start, 0) + 1
    return block * sum(count > 1 for count in seen.values())


_PLAIN = {"user": "{{ text }}"}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("uniform", "short and uniform", 256, uniform, 16, _PLAIN, {"ignore_eos": True}),
        Workload("docstrings", "docstrings, skewed lengths", 512, docstrings, 24),
        Workload(
            "prefixes",
            "long shared prefixes, shuffled",
            180,
            prefixes,
            8,
            {"user": "{{ document }}\n\n{{ question }}"},
            run={"order": "prefix"},
            kv_cache_bytes=3 * 2**26,  # 8,704 tokens of the demo model
        ),
        Workload("duplicates", "20 % exact duplicates", 320, duplicates, 24, run={"deduplicate": "auto"}),
        Workload(
            "tail",
            "long tail of output lengths",
            256,
            long_tail,
            16,
            sampling={"ignore_eos": True, "per_row_column": "sampling"},
        ),
        Workload("bad_rows", "1 % bad rows", 300, bad_rows, 16, _PLAIN),
        Workload("float32", "docstrings, float32", 96, docstrings, 24, model={"dtype": "float32"}),
        Workload("slots", "short and uniform, fewer at a time", 128, uniform, 16, _PLAIN, {"ignore_eos": True}),
        Workload("feed", "docstrings, ours with `feed: generate`", 256, docstrings, 24, run={"feed": "generate"}),
    )
}
