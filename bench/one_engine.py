"""Our feeding and `LLM.generate`, one after the other on the same engine: no start-up between them, so little noise.

Usage: python -m bench.one_engine job.yaml result.json ROUNDS CONTENDER…      (ours, once, per_shard)

`ours` is the replica's own code: it reads, renders, tokenises, orders, feeds, journals and publishes. The others get
the finished token ids and only generate. The prefix cache is emptied before each.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vllm import SamplingParams

from batchjobs.channel import Sender
from batchjobs.engines.base import Request
from batchjobs.engines.vllm import VllmEngine
from batchjobs.plan import make_plan, read_dataset
from batchjobs.render import rendered
from batchjobs.replica import wire
from batchjobs.spec import load_job, resolve_references


class Contest:
    """One engine, and the ways to use it."""

    def __init__(self, job_file: str) -> None:
        job = load_job(job_file)
        resolved = resolve_references(job)
        dataset = read_dataset(resolved)
        self.plan = make_plan(job, resolved, dataset)
        made = rendered(resolved, self.plan, dataset, dataset.shards)
        self.requests = [request for request in made if isinstance(request, Request)]
        self.output = Path(resolved.output.path)
        self.order = {
            "job": resolved.model_dump(mode="json"),
            "plan": self.plan.model_dump_json(),
            "paths": [file.path for file in self.plan.files],
            "attempt": 1, "lowered": False, "context_chosen": False, "own_max_model_len": None,
            "groups": [], "quarantined": {}, "has_worked": True, "retry": [],
            "retried_shards": [],
        }  # fmt: skip
        self.engine = VllmEngine(resolved)

    def ours(self) -> dict[str, Any]:
        """The replica's code, with nobody listening."""
        shutil.rmtree(self.output, ignore_errors=True)
        shards = iter(range(len(self.plan.shards)))
        commands: Any = SimpleNamespace(next_shard=lambda: next(shards, None), stop_by=None)
        silence = os.open(os.devnull, os.O_WRONLY)
        feeder = wire(self.order, self.engine, commands, Sender(silence))
        feeder.run()
        os.close(silence)
        laps = feeder.watch.seconds()
        tally = feeder._collector.tally
        stats = self.engine.stats()
        return {"rows": tally.rows, "output_tokens": tally.output_tokens, "seconds": laps["generating"], "laps": laps,
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
