"""A replica from its parts: engine, preparation, feeding, collection; and its life, from `ready` to `bye`."""

from __future__ import annotations

import logging
import sys

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.accounts.stopwatch import Stopwatch
from batchjobs.data.filesystem import open_url
from batchjobs.data.reader import ShardReader
from batchjobs.engines import create_engine
from batchjobs.engines.base import Engine
from batchjobs.errors import BatchjobsError, ContextTooShort, EngineDied
from batchjobs.fingerprint import model_id
from batchjobs.planning.plan import predicate_of
from batchjobs.replica.assignment import Assignment
from batchjobs.replica.channel import Sender
from batchjobs.replica.collect import Collector
from batchjobs.replica.commands import Commands
from batchjobs.replica.feed import Feeder
from batchjobs.replica.feed_generate import GenerateFeeder
from batchjobs.replica.order import Ordering
from batchjobs.replica.prepare import Preparer
from batchjobs.rows.prompts import Renderer
from batchjobs.rows.tokens import Tokenizer, load_tokenizer
from batchjobs.storage.checkpoint import Commit, committed_shards
from batchjobs.storage.journal import Journal
from batchjobs.storage.lease import fenced
from batchjobs.storage.standing import StandingResults
from batchjobs.storage.store import open_store
from schemas.job import JobSpec

logger = logging.getLogger("batchjobs.replica")


def start_engine(job: JobSpec) -> Engine:
    """The engine of the job, ready. Raises EngineDied."""
    try:
        return create_engine(job)
    except Exception as death:
        raise EngineDied(death) from death


def wire(
    assignment: Assignment,
    engine: Engine,
    tokenizer: Tokenizer,
    commands: Commands,
    events: Sender,
    watch: Stopwatch,
) -> Feeder:
    """Everything around an engine that is ready, wired up but not started. `watch` runs since the engine was ready."""
    job, plan, attempt = assignment.job, assignment.plan, assignment.attempt
    renderer = Renderer(job, plan.input_schema, plan.as_of, keep_text=job.engine.kind == "echo")
    info = engine.info
    own_max_len = (assignment.own_max_model_len or info.model_max_len) if assignment.context_chosen else None
    renderer.connect(
        tokenizer, info.max_model_len, info.vocab_size, model_id(plan.model), own_max_len, assignment.lowered
    )
    predicate = predicate_of(job, plan.input_schema)
    names = dict.fromkeys([*renderer.columns, *plan.kept_columns, *(predicate.columns if predicate else [])])
    fs = open_url(_first(job.input.path), job.input.storage_options)[0]

    def committed(commit: Commit) -> None:
        events.send("committed", commit=commit.model_dump())

    store = fenced(open_store(job.output.path, job.output.storage_options), assignment.epoch)
    lengths = OutputLengths()
    caching = job.engine.enable_prefix_caching is not False
    ordering = Ordering(job.run.order, caching, info.kv_cache_tokens, OutputLengths(assignment.lengths), lengths)
    journal = Journal(store, attempt, plan.shard_of)
    journal.load(committed_shards(store) - set(assignment.retried_shards))
    commands.handed_on = journal.look_again
    collector = Collector(
        store,
        plan.result_schema,
        job.output.prefix,
        plan.fingerprint,
        attempt,
        info.max_model_len,
        journal,
        assignment.has_worked or any(result.error_code is None for result in journal.earlier.values()),
        lengths,
        watch,
        committed,
    )
    groups = {row: index for index, rows in enumerate(assignment.groups) for row in rows}
    preparer = Preparer(
        commands.next_shard,
        collector.opened,
        plan.shards,
        ShardReader(fs, assignment.paths, plan.files, plan.input_schema, list(names)),
        renderer,
        predicate.mask if predicate else None,
        plan.kept_columns,
        ordering,
        job.run.deduplicate,
        job.run.feed == "generate",
        info.max_num_seqs,
        attempt,
        journal.earlier,
        assignment.quarantined,
        groups,
        StandingResults(store, job.output.prefix, frozenset(assignment.retry)).of if assignment.retry else None,
    )
    kind = GenerateFeeder if job.run.feed == "generate" else Feeder
    return kind(engine, preparer, collector, commands, events, groups, watch)


def _first(path: str | list[str]) -> str:
    return path if isinstance(path, str) else path[0]


def live(assignment: Assignment, commands: Commands, events: Sender) -> None:
    """The life of a replica; returns after `bye` with its engine running, else exits with 1 after `failed`."""
    engine = None
    try:
        # Before the engine, which would stand idle for it.
        tokenizer = load_tokenizer(assignment.job, assignment.plan.as_of)
        engine = start_engine(assignment.job)
        info = engine.info
        events.send("ready", engine={name: getattr(info, name) for name in info.__slots__})
        wire(assignment, engine, tokenizer, commands, events, Stopwatch()).run()
        events.send("bye", stopped=commands.stop_by is not None)
    except BaseException as failure:
        logger.exception("The replica failed.")
        said = str(failure) if isinstance(failure, BatchjobsError) else f"{type(failure).__name__}: {failure}"
        events.send("failed", error=said, engine=isinstance(failure, (EngineDied, ContextTooShort, MemoryError)))
        if engine is not None:
            engine.close()
        sys.exit(1)
