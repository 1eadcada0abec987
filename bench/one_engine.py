"""Our feeding and `LLM.generate`, one after the other on the same engine: no start-up between them, so little noise.

Usage: python -m bench.one_engine job.yaml DESCRIPTOR ROUNDS CONTENDER…
       (ours, once, per_shard, unfiltered, 8_at_a_time)

`ours` is the replica's own code: it reads, renders, tokenises, orders, feeds, journals and publishes. The others get
the finished token ids of the good rows and only generate; `unfiltered` gets the bad rows, too. The prefix cache is
emptied before each. One JSON record a line goes to the descriptor.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from vllm import SamplingParams

from batchjobs.engines.base import Request
from batchjobs.engines.vllm import VllmEngine
from batchjobs.planning.plan import read_dataset
from batchjobs.planning.render import rendered
from batchjobs.spec import load_job, resolve_references
from bench.wired import assignment_of, run_wired
from bench.workloads import shared_tokens

_BLOCK = 128  # tokens of a block of vLLM's KV cache on CPU
_WARM_UP = 64  # requests

Found = dict[str, Any]


class Meter:
    """Counts what vLLM's engine is asked, and the seconds that its caller spends in it."""

    def __init__(self, llm_engine: Any) -> None:
        self.added, self.inside = 0, 0.0
        self._add, self._step = llm_engine.add_request, llm_engine.step
        llm_engine.add_request, llm_engine.step = self._added, self._stepped

    def _added(self, *arguments: Any, **named: Any) -> Any:
        self.added += 1
        return self._timed(self._add, *arguments, **named)

    def _stepped(self) -> Any:
        return self._timed(self._step)

    def _timed(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **named)
        finally:
            self.inside += time.perf_counter() - began


class Contest:
    """One engine, and the ways to use it."""

    def __init__(self, job_file: str) -> None:
        job = load_job(job_file)
        resolved = resolve_references(job)
        dataset = read_dataset(resolved)
        self.assignment = assignment_of(job)
        self.plan = self.assignment.plan
        self.rows = sum(shard.rows for shard in self.plan.shards)
        made = rendered(resolved, self.plan, dataset, dataset.shards)
        self.all_requests = [request for request in made if isinstance(request, Request)]
        self.output = Path(resolved.output.path)
        self.engine = VllmEngine(resolved)
        self.meter = Meter(self.engine.llm.llm_engine)
        self.requests = [r for r in self.all_requests if len(r.token_ids) < self.engine.info.max_model_len]
        self.answers: dict[int, str] = {}  # those of the first contender: the reference

    def facts(self) -> Found:
        """What holds for every round."""
        prompts = [request.token_ids for request in self.requests]
        capacity = self.engine.info.kv_cache_tokens
        return {"rows": self.rows, "good_rows": len(prompts), "shards": len(self.plan.shards),
                "prompt_tokens": sum(map(len, prompts)), "kv_cache_tokens": capacity,
                "prefix_tokens": shared_tokens(prompts, _BLOCK), "vllm": self.engine.info.version}  # fmt: skip

    def ours(self) -> Found:
        """The replica's code, with nobody listening."""
        shutil.rmtree(self.output, ignore_errors=True)
        feeder, _ = run_wired(self.assignment, self.engine)
        laps = feeder.watch.seconds()
        table = pq.read_table(self.output, columns=["row", "status", "output", "output_tokens"]).to_pylist()
        good = [row for row in table if row["status"] == "ok"]
        return {"rows": len(good), "output_tokens": sum(row["output_tokens"] for row in good), "laps": laps,
                "seconds": laps["generating"], "answers": {row["row"]: row["output"] for row in good}}  # fmt: skip

    def once(self) -> Found:
        """One `LLM.generate` over all good rows, in input order."""
        return self._generated([self.requests])

    def unfiltered(self) -> Found:
        """The same with the bad rows that have tokens at all."""
        return self._generated([self.all_requests])

    def per_shard(self) -> Found:
        """One `LLM.generate` for each shard."""
        ranges = [range(shard.first_row, shard.first_row + shard.rows) for shard in self.plan.shards]
        return self._generated([[r for r in self.requests if r.row in rows] for rows in ranges])

    def at_a_time(self, count: int) -> Found:
        """`LLM.generate` over so many requests at a time: what an engine gives that is never more than so full."""
        return self._generated([self.requests[at : at + count] for at in range(0, len(self.requests), count)])

    def _generated(self, calls: Iterable[list[Request]]) -> Found:
        outputs: list[tuple[int, Any]] = []
        began = time.monotonic()
        for requests in calls:
            params = [SamplingParams(**request.sampling) for request in requests]
            prompts: Any = [{"prompt_token_ids": request.token_ids} for request in requests]
            made = self.engine.llm.generate(prompts, params, use_tqdm=False)
            outputs += [(r.row, output.outputs[0]) for r, output in zip(requests, made, strict=True)]
        seconds = time.monotonic() - began
        tokens = sum(len(answer.token_ids) for _, answer in outputs)
        return {"rows": len(outputs), "output_tokens": tokens, "seconds": seconds,
                "answers": {row: answer.text for row, answer in outputs}}  # fmt: skip

    def warm_up(self) -> None:
        """Some requests first: the first steps of an engine are slow."""
        self._generated([self.requests[:_WARM_UP]])

    def timed(self, name: str) -> Found:
        """One contender. `cpu`: processor seconds of this process; `inside`: seconds within `step`, `add_request`."""
        self.engine.llm.reset_prefix_cache()
        way = self._way(name)
        self.meter.added, self.meter.inside = 0, 0.0
        stats, cpu, began = self.engine.stats(), _cpu(), time.monotonic()
        try:
            found = way()
        except Exception as failure:
            found = {"error": f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}", "rows": 0}
        taken = {"wall": time.monotonic() - began, "cpu": _cpu() - cpu, "inside": self.meter.inside}
        return {"contender": name, **taken, "added": self.meter.added, **self._since(stats), **self._compared(found)}

    def _way(self, name: str) -> Callable[[], Found]:
        count, at_a_time, _ = name.partition("_at_a_time")
        way: Callable[[], Found] = partial(self.at_a_time, int(count)) if at_a_time else getattr(self, name)
        return way

    def _since(self, before: Any) -> Found:
        names = ("prefix_cache_queries", "prefix_cache_hits", "preemptions")
        now = self.engine.stats()
        return {name: (getattr(now, name) or 0) - (getattr(before, name) or 0) for name in names}

    def _compared(self, found: Found) -> Found:
        """Rows whose text is not the reference's, instead of the texts."""
        answers = found.pop("answers", {})
        self.answers = self.answers or answers
        different = sum(text != self.answers.get(row) for row, text in answers.items())
        return {**found, "different": different}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Rounds of all contenders, each round in the opposite order of the last."""
    job, descriptor, rounds, contenders = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    with os.fdopen(descriptor, "w", buffering=1) as told:
        contest = Contest(job)
        told.write(json.dumps({"facts": contest.facts()}) + "\n")
        contest.warm_up()
        for number in range(rounds):
            for name in contenders if number % 2 == 0 else reversed(contenders):
                told.write(json.dumps({"round": number, **contest.timed(name)}) + "\n")
        contest.engine.close()


if __name__ == "__main__":
    main()
