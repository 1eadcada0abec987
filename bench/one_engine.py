"""Our feeding and `LLM.generate`, one after the other on the same engine: no start-up between them, so little noise.

Usage: python -m bench.one_engine job.yaml result.json ROUNDS CONTENDER…      (ours, generate, once, per_shard)

`ours` and `generate` are the replica's own code: it reads, renders, tokenises, orders, feeds, journals and publishes.
The others get the finished token ids and only generate. `outside` is the share of the main thread's time that `ours`
spends outside the engine's `step` and `submit`. The prefix cache is emptied before each.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from vllm import SamplingParams

from batchjobs.engines.base import Completion, Request
from batchjobs.engines.vllm import VllmEngine
from batchjobs.plan import read_dataset
from batchjobs.render import rendered
from batchjobs.spec import load_job, resolve_references
from bench.wired import order_of, run_wired
from schemas.job import JobSpec


class TimedEngine(VllmEngine):
    """Notes how long its caller waits for it."""

    def __init__(self, job: JobSpec) -> None:
        super().__init__(job)
        self.seconds: Counter[str] = Counter()

    def submit(self, request: Request) -> None:
        """See Engine."""
        began = time.perf_counter()
        try:
            super().submit(request)
        finally:
            self.seconds["submit"] += time.perf_counter() - began

    def step(self) -> list[Completion]:
        """See Engine."""
        began = time.perf_counter()
        try:
            return super().step()
        finally:
            self.seconds["step"] += time.perf_counter() - began


def outside(laps: dict[str, float], inside: Counter[str]) -> float:
    """Share of the main thread's time, waiting for prepared rows left out, that it spends in our own code."""
    total = sum(seconds for label, seconds in laps.items() if label not in ("generating", "starved"))
    return 1 - sum(inside.values()) / total if total else 0.0


class Contest:
    """One engine, and the ways to use it."""

    def __init__(self, job_file: str) -> None:
        job = load_job(job_file)
        resolved = resolve_references(job)
        dataset = read_dataset(resolved)
        self.order, self.plan = order_of(job)
        made = rendered(resolved, self.plan, dataset, dataset.shards)
        self.requests = [request for request in made if isinstance(request, Request)]
        self.output = Path(resolved.output.path)
        self.engine = TimedEngine(resolved)

    def ours(self) -> dict[str, Any]:
        """The replica's code, with nobody listening."""
        found = self._fed("continuous")
        return {**found, "outside": outside(found["laps"], self.engine.seconds)}

    def generate(self) -> dict[str, Any]:
        """The same with `feed: generate`."""
        return self._fed("generate")

    def _fed(self, feed: str) -> dict[str, Any]:
        shutil.rmtree(self.output, ignore_errors=True)
        job = self.order["job"]
        self.engine.seconds.clear()
        feeder, _ = run_wired(
            {**self.order, "job": {**job, "run": {**job["run"], "feed": feed}}}, self.plan, self.engine
        )
        laps = feeder.watch.seconds()
        tally, stats = feeder._collector.tally, self.engine.stats()
        return {"rows": tally.rows, "output_tokens": tally.output_tokens, "seconds": laps["generating"], "laps": laps,
                "inside": dict(self.engine.seconds),
                "stats": {name: getattr(stats, name) for name in stats.__slots__}}  # fmt: skip

    def once(self) -> dict[str, Any]:
        """One `LLM.generate` over everything."""
        return self._generated([self.requests])

    def per_shard(self) -> dict[str, Any]:
        """One `LLM.generate` for each shard."""
        requests = iter(self.requests)
        return self._generated([list(islice(requests, shard.rows)) for shard in self.plan.shards])

    def _generated(self, calls: list[list[Request]]) -> dict[str, Any]:
        rows = tokens = 0
        began = time.monotonic()
        for requests in calls:
            params = [SamplingParams(**request.sampling) for request in requests]
            prompts = [{"prompt_token_ids": request.token_ids} for request in requests]
            outputs = self.engine.llm.generate(prompts, params, use_tqdm=False)  # type: ignore[arg-type]
            rows += len(outputs)
            tokens += sum(len(output.outputs[0].token_ids) for output in outputs)
        return {"rows": rows, "output_tokens": tokens, "seconds": time.monotonic() - began}

    def timed(self, name: str) -> dict[str, Any]:
        """One contender, with the processor seconds that this process took."""
        self.engine.llm.reset_prefix_cache()
        way: Callable[[], dict[str, Any]] = getattr(self, name)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        found = way()
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"contender": name, "wall": time.monotonic() - began, "cpu": cpu, **found}


def main() -> None:
    """Rounds of all contenders, each round in the opposite order of the last."""
    job, result, rounds, contenders = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    contest = Contest(job)
    contest.once() if len(contest.requests) <= 64 else contest._generated([contest.requests[:64]])  # warm
    found = []
    for number in range(rounds):
        for name in contenders if number % 2 == 0 else reversed(contenders):
            found.append({"round": number, **contest.timed(name)})
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    Path(result).write_text(json.dumps(found))
    contest.engine.close()
    assert threading.current_thread() is threading.main_thread()


if __name__ == "__main__":
    main()
