"""A finished shard as a part: its commit record, and kept and result columns side by side."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import islice

import pyarrow as pa

from batchjobs.replica.window import OpenShard
from batchjobs.rows.health import health_of
from batchjobs.rows.results import Result, Tally, result_batch
from batchjobs.storage.checkpoint import Commit, Work


def commit_of(shard: OpenShard, fingerprint: str, attempt: int, nonce: str) -> Commit:
    """What the part says about itself."""
    tally, reused, copied = Tally(), defaultdict[int, Tally](Tally), Tally()
    for result in shard.results:
        if result is not None:
            known = result.attempt != attempt
            answered = result.finish_reason is not None
            tally.add(result, reached_engine=known or answered)
            if known:
                reused[result.attempt].add(result, answered)
            elif result.copied:
                copied.add(result, answered)
    return Commit(
        fingerprint=fingerprint,
        shard=shard.index,
        revision=shard.revision,
        attempt=attempt,
        nonce=nonce,
        rows=tally.rows,
        filtered=shard.filtered,
        ok=tally.ok,
        errors=tally.errors,
        warnings=tally.warnings,
        rejected=tally.rejected,
        reused=sum(each.rows for each in reused.values()),
        reused_from={
            number: Work(rows=each.rows, prompt_tokens=each.prompt_tokens, output_tokens=each.output_tokens)
            for number, each in reused.items()
        },
        deduplicated=copied.rows,
        copied=Work(
            rows=copied.rows,
            prompt_tokens=copied.saved_prompt_tokens,
            output_tokens=copied.saved_output_tokens,
        ),
        health=health_of(shard.results),
        seconds=round(time.monotonic() - shard.opened, 3),
        tokens={
            "prompt": tally.prompt_tokens,
            "output": tally.output_tokens,
            "cached": tally.cached_tokens,
            "saved": tally.saved_prompt_tokens + tally.saved_output_tokens,
        },
    )


def part_batches(shard: OpenShard, schema: pa.Schema, prefix: str) -> list[pa.RecordBatch]:
    """The rows of the part, batch by batch, in the dataset's order."""
    results = (result for result in shard.results if result is not None)
    kept_batches = [kept for kept in shard.kept if kept.num_rows]
    return [_side_by_side(kept, list(islice(results, kept.num_rows)), schema, prefix) for kept in kept_batches]


def _side_by_side(kept: pa.RecordBatch, results: list[Result], schema: pa.Schema, prefix: str) -> pa.RecordBatch:
    made = result_batch(results, prefix)
    return pa.RecordBatch.from_arrays([*kept.columns, *made.columns], schema=schema)
