"""One replica: a process with one engine. `python -m batchjobs.replica` is started by the dispatcher only.

Commands come on standard input, one JSON message a line; its end of file kills the process group, engine included.
Events go to the descriptor named on the command line. Everything printed goes to the log.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import fsspec

from batchjobs.channel import Sender
from batchjobs.checkpoint import Commit, committed_shards
from batchjobs.collect import Collector
from batchjobs.commands import Commands
from batchjobs.engines import create_engine
from batchjobs.engines.base import Engine
from batchjobs.errors import BatchjobsError, ContextTooShort, EngineDied
from batchjobs.feed import Feeder
from batchjobs.feed_generate import GenerateFeeder
from batchjobs.fingerprint import model_id
from batchjobs.journal import Journal
from batchjobs.lease import fenced
from batchjobs.lengths import OutputLengths
from batchjobs.order import Ordering
from batchjobs.plan import predicate_of
from batchjobs.prepare import Preparer
from batchjobs.prompts import Renderer
from batchjobs.reader import ShardReader
from batchjobs.standing import StandingResults
from batchjobs.store import open_store
from batchjobs.tokenizers_only import spare_torch
from batchjobs.tokens import Tokenizer, load_tokenizer
from schemas.job import JobSpec
from schemas.plan import Plan

logger = logging.getLogger("batchjobs.replica")


def start_engine(order: dict[str, Any]) -> Engine:
    """The engine of the order's job, ready. Raises EngineDied."""
    try:
        return create_engine(JobSpec.model_validate(order["job"]))
    except Exception as death:
        raise EngineDied(death) from death


def load_tokenizer_of(order: dict[str, Any]) -> Tokenizer:
    """The tokenizer of the order's job. Raises SpecError."""
    return load_tokenizer(JobSpec.model_validate(order["job"]), Plan.model_validate_json(order["plan"]).as_of)


def wire(order: dict[str, Any], engine: Engine, tokenizer: Tokenizer, commands: Commands, events: Sender) -> Feeder:
    """Everything around an engine that is ready, wired up but not started."""
    job, plan = JobSpec.model_validate(order["job"]), Plan.model_validate_json(order["plan"])
    renderer = Renderer(job, plan.input_schema, plan.as_of, keep_text=job.engine.kind == "echo")
    info = engine.info
    own_max_len = (order["own_max_model_len"] or info.model_max_len) if order["context_chosen"] else None
    renderer.connect(
        tokenizer, info.max_model_len, info.vocab_size, model_id(plan.model), own_max_len, order["lowered"]
    )
    predicate = predicate_of(job, plan.input_schema)
    names = dict.fromkeys([*renderer.columns, *plan.kept_columns, *(predicate.columns if predicate else [])])
    fs = fsspec.url_to_fs(_first(job.input.path), **job.input.storage_options)[0]

    def committed(commit: Commit) -> None:
        events.send("committed", commit=commit.model_dump())

    store = fenced(open_store(job.output.path, job.output.storage_options), order.get("epoch"))
    lengths = OutputLengths()
    caching = job.engine.enable_prefix_caching is not False
    ordering = Ordering(job.run.order, caching, info.kv_cache_tokens, OutputLengths(order.get("lengths")), lengths)
    journal = Journal(store, order["attempt"], plan.shard_of)
    journal.load(committed_shards(store) - set(order["retried_shards"]))
    commands.handed_on = journal.look_again
    collector = Collector(
        store,
        plan.result_schema,
        job.output.prefix,
        plan.fingerprint,
        order["attempt"],
        info.max_model_len,
        journal,
        order["has_worked"] or any(result.error_code is None for result in journal.earlier.values()),
        lengths,
        committed,
    )
    groups = {row: index for index, rows in enumerate(order["groups"]) for row in rows}
    preparer = Preparer(
        commands.next_shard,
        collector.opened,
        plan.shards,
        ShardReader(fs, order["paths"], plan.files, plan.input_schema, list(names)),
        renderer,
        predicate.mask if predicate else None,
        plan.kept_columns,
        ordering,
        job.run.deduplicate,
        job.run.feed == "generate",
        info.max_num_seqs,
        order["attempt"],
        journal.earlier,
        {int(row): words for row, words in order["quarantined"].items()},
        groups,
        StandingResults(store, job.output.prefix, frozenset(order["retry"])).of if order["retry"] else None,
    )
    kind = GenerateFeeder if job.run.feed == "generate" else Feeder
    return kind(engine, preparer, collector, commands, events, groups)


def _first(path: str | list[str]) -> str:
    return path if isinstance(path, str) else path[0]


def main() -> None:
    """What the dispatcher starts."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    events = Sender(int(sys.argv[1]))
    commands = Commands(events)
    order = commands.first()
    if order["job"]["engine"]["kind"] == "echo":
        spare_torch()
    if order["cores"]:  # before anything is started that would inherit more
        os.sched_setaffinity(0, order["cores"])
    commands.start()
    live(order, commands, events)
    signal.pause()  # all is published: the dispatcher ends this group at once. vLLM's own farewell would take 5 s


def live(order: dict[str, Any], commands: Commands, events: Sender) -> None:
    """The life of a replica; returns after `bye` with its engine running, else exits with 1 after `failed`."""
    engine = None
    try:
        tokenizer = load_tokenizer_of(order)  # before the engine, which would stand idle for it
        engine = start_engine(order)
        info = engine.info
        events.send("ready", engine={name: getattr(info, name) for name in info.__slots__})
        feeder = wire(order, engine, tokenizer, commands, events)
        feeder.run()
        feeder.report()
        events.send("bye", stopped=commands.stop_by is not None)
    except BaseException as failure:
        logger.exception("The replica failed.")
        said = str(failure) if isinstance(failure, BatchjobsError) else f"{type(failure).__name__}: {failure}"
        events.send("failed", error=said, engine=isinstance(failure, (EngineDied, ContextTooShort, MemoryError)))
        if engine is not None:
            engine.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
