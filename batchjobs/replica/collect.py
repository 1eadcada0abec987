"""Behind the engine, on a thread of its own: results into their shards, a part when a shard's last row lands."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from batchjobs.accounts.histogram import Histogram, Lengths
from batchjobs.accounts.lengths import OutputLengths
from batchjobs.accounts.stopwatch import Stopwatch
from batchjobs.engines.base import Completion, Request
from batchjobs.errors import EngineFailed
from batchjobs.replica.part import commit_of, part_batches
from batchjobs.replica.window import OpenShard
from batchjobs.rows.prompts import RowError
from batchjobs.rows.results import Result, Tally, of_completion, of_copy, of_error
from batchjobs.storage.checkpoint import Commit, publish_part
from batchjobs.storage.journal import Journal
from batchjobs.storage.store import Store
from schemas.records import GOOD_FINISH_REASONS, ErrorCode

Ended = tuple[Completion | RowError, Request, OpenShard]

_ENGINE_SIDE = frozenset({ErrorCode.ENGINE_ABORT, ErrorCode.ENGINE_ERROR, ErrorCode.ENGINE_REJECTED})
_IDLE_S = 1.0
_HOPELESS = 100  # engine-side errors in a row, without one success: the engine is broken, not the rows


class Collector(threading.Thread):
    """Takes opened shards and ended requests, in the order in which they are put."""

    def __init__(
        self,
        store: Store,
        schema: pa.Schema,
        prefix: str,
        fingerprint: str,
        attempt: int,
        max_model_len: int,
        journal: Journal,
        has_worked: bool,
        lengths: OutputLengths,
        watch: Stopwatch,
        committed: Callable[[Commit], None],
    ) -> None:
        super().__init__(name="collect", daemon=True)
        self.tally = Tally()  # rows of this attempt with a result, committed or not
        self.open_rows = 0  # rows with a result in shards that are still open
        self.latencies = {name: Histogram() for name in ("queue_s", "ttft_s", "tpot_s")}
        self.lengths = lengths  # of the answers of this attempt, by the length of their prompts
        self.prompt_tokens, self.output_tokens = Lengths(), Lengths()  # of the requests answered in this attempt
        self.failure: BaseException | None = None
        self._inbox: queue.SimpleQueue[OpenShard | list[Ended] | None] = queue.SimpleQueue()
        self._store, self._schema, self._prefix, self._fingerprint = store, schema, prefix, fingerprint
        self._attempt, self._max_model_len, self._committed = attempt, max_model_len, committed
        self._nonce = uuid.uuid4().hex
        self._journal = journal
        self._watch = watch
        self._has_unsaved = False  # a row has landed since all that is finished was in a part or in the journal
        self._errors_in_a_row = 0
        self._has_worked = has_worked  # the engine has answered a row of this job well, in whatever attempt

    def opened(self, shard: OpenShard) -> None:
        """A shard is prepared; the rows that need no engine already have their results."""
        self._inbox.put(shard)

    def ended(self, requests: list[Ended]) -> None:
        """Requests ended."""
        self._inbox.put(requests)

    def finish(self) -> None:
        """Work off what was put; returns when it is published. What is still open stays uncommitted."""
        self._inbox.put(None)
        self.join()

    def run(self) -> None:
        """Collect until `finish`; a failure is kept for the engine's thread."""
        try:
            while (item := self._next()) is not None:
                if isinstance(item, OpenShard):
                    self._open(item)
                else:
                    for done, request, shard in item:
                        self._end(done, request, shard)
                self._journal.flush_if_due()
                self._notice_saved()
            self._journal.flush()
            self._notice_saved()
        except BaseException as failure:
            self.failure = failure
            with suppress(Exception):  # what failed may be one shard only: what is finished of the others is not lost
                self._journal.flush()
                self._notice_saved()

    def _notice_saved(self) -> None:
        if self._has_unsaved and self._journal.is_flushed:
            self._has_unsaved = False
            self._watch.saved()

    def _next(self) -> OpenShard | list[Ended] | None:
        try:
            return self._inbox.get(timeout=_IDLE_S)
        except queue.Empty:
            return []  # nothing ended, but the journal may be due

    def _open(self, shard: OpenShard) -> None:
        for result in shard.results:
            if result is not None and result.attempt == self._attempt:
                self.tally.add(result, reached_engine=False)
        self.open_rows += sum(result is not None for result in shard.results) + shard.filtered
        self._publish_if_complete(shard)

    def _end(self, done: Completion | RowError, request: Request, shard: OpenShard) -> None:
        reached = isinstance(done, Completion)
        if isinstance(done, Completion):
            result = of_completion(done, request, self._max_model_len, self._attempt)
            self._learn(done, request)
        else:
            result = of_error(done, self._attempt)
        self._notice_a_broken_engine(result)
        followers = shard.window.followers.pop(request.row, []) if shard.window is not None else []
        self._settle(result, shard, reached)
        for row, other in followers:
            self._settle(of_copy(result, row), other, reached)

    def _learn(self, done: Completion, request: Request) -> None:
        for name, histogram in self.latencies.items():
            histogram.add(getattr(done, name))
        if done.finish_reason in GOOD_FINISH_REASONS:
            self.lengths.add(len(request.token_ids), done.output_tokens)
            self.prompt_tokens.add(len(request.token_ids))
            self.output_tokens.add(done.output_tokens)

    def _settle(self, result: Result, shard: OpenShard, reached: bool) -> None:
        """One row of a shard has its result."""
        shard.put(result)
        shard.missing -= 1
        self.open_rows += 1
        self._has_unsaved = True
        self.tally.add(result, reached)
        if shard.missing and result.finish_reason in GOOD_FINISH_REASONS:
            self._journal.add(shard.index, result)
        self._publish_if_complete(shard)

    def _notice_a_broken_engine(self, result: Result) -> None:
        self._errors_in_a_row = self._errors_in_a_row + 1 if result.error_code in _ENGINE_SIDE else 0
        if self._errors_in_a_row >= _HOPELESS and not (self._has_worked or self.tally.ok):
            raise EngineFailed(
                f"the engine failed {_HOPELESS} rows in a row and none succeeded; the last: {result.error}"
            )

    def _publish_if_complete(self, shard: OpenShard) -> None:
        if shard.missing:
            return
        batches = part_batches(shard, self._schema, self._prefix)
        commit = commit_of(shard, self._fingerprint, self._attempt, self._nonce)
        self._committed(publish_part(self._store, batches, self._schema, commit))
        self._journal.committed(shard.index)
        self.open_rows -= shard.shard.rows
        if shard.window is not None:
            shard.window.committed()
