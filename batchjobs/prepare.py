"""Ahead of the engine, on a thread of its own: read shards, render, tokenise, order a window."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from batchjobs.columns import filtered
from batchjobs.engines.base import Request
from batchjobs.order import ordered
from batchjobs.prompts import Renderer, RowError
from batchjobs.reader import ShardReader
from batchjobs.results import Result, of_error
from batchjobs.window import Fed, OpenShard, Window
from schemas.job import Order
from schemas.plan import Shard
from schemas.records import ErrorCode

_OPEN_WINDOWS = 2  # one is fed, one is ready: nothing starves, and memory is bounded
_RENDER_ROWS = 512  # rows rendered and tokenised at once: enough for the tokenizer's threads, small enough to stop


class Stopped(Exception):
    """The run was asked to stop while a window was prepared."""


class Preparer(threading.Thread):
    """Puts ordered windows into `windows`, then None when no shard is left."""

    def __init__(
        self,
        next_shard: Callable[[], int | None],
        opened: Callable[[OpenShard], None],
        shards: list[Shard],
        reader: ShardReader,
        renderer: Renderer,
        mask: Callable[[pa.RecordBatch], Any] | None,
        kept: list[str],
        order: Order,
        shard_by_shard: bool,
        max_num_seqs: int,
        attempt: int,
        journaled: Mapping[int, Result],
        quarantined: Mapping[int, str],
        groups: Mapping[int, int],
        standing: Callable[[int], tuple[Mapping[int, Result], int]] | None,
    ) -> None:
        super().__init__(name="prepare", daemon=True)
        self.windows: queue.Queue[Fed | None] = queue.Queue()
        self.failure: BaseException | None = None
        self._stop_asked = threading.Event()
        self._places = threading.Semaphore(_OPEN_WINDOWS)
        self._next_shard, self._opened, self._shards = next_shard, opened, shards
        self._reader, self._renderer, self._mask, self._kept = reader, renderer, mask, kept
        self._order, self._attempt = order, attempt
        self._least_shards, self._least_rows = (1, 0) if shard_by_shard else (2, 4 * max_num_seqs)
        self._journaled, self._quarantined, self._groups = journaled, quarantined, groups
        self._standing = standing

    def stop(self) -> None:
        """Prepare nothing more."""
        self._stop_asked.set()

    def run(self) -> None:
        """Prepare windows until the shards are used up; a failure is kept for the engine's thread."""
        try:
            for window in self._prepared():
                self.windows.put(window)
        except Stopped:
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self.windows.put(None)

    def _prepared(self) -> Iterator[Fed]:
        more = True
        while more:
            while not self._places.acquire(timeout=0.2):
                self._check_stop()
            prepared, more = self._some_shards()
            if prepared:
                yield self._window(prepared)

    def _some_shards(self) -> tuple[list[tuple[OpenShard, list[Request]]], bool]:
        """The shards of a window: two or more, with four times max_num_seqs requests, or one; and if there is more."""
        prepared: list[tuple[OpenShard, list[Request]]] = []
        while len(prepared) < self._least_shards or sum(len(rows) for _, rows in prepared) < self._least_rows:
            self._check_stop()
            index = self._next_shard()
            if index is None:
                return prepared, False
            prepared.append(self._prepare(index))
        return prepared, True

    def _window(self, prepared: list[tuple[OpenShard, list[Request]]]) -> Fed:
        owner = {request.row: shard for shard, requests in prepared for request in requests}
        requests = ordered([request for _, requests in prepared for request in requests], self._order)
        if self._groups:  # suspects first, group by group
            requests.sort(key=lambda request: self._groups.get(request.row, len(self._groups)))
        window = Window(len(prepared), self._places)
        for shard, _ in prepared:
            shard.window = window
            self._opened(shard)
        return [(request, owner[request.row]) for request in requests]

    def _prepare(self, index: int) -> tuple[OpenShard, list[Request]]:
        planned = self._shards[index]
        shard = OpenShard(index, planned, results=[None] * planned.rows)
        known, shard.revision = self._standing(index) if self._standing is not None else ({}, 0)
        requests: list[Request] = []
        row = planned.first_row
        for batch in self._reader.read(planned):
            for start in range(0, batch.num_rows, _RENDER_ROWS):
                self._check_stop()
                piece = batch.slice(start, _RENDER_ROWS)
                requests.extend(self._render(shard, piece, row, known))
                row += piece.num_rows
        shard.missing = len(requests)
        return shard, requests

    def _render(
        self, shard: OpenShard, batch: pa.RecordBatch, first_row: int, known: Mapping[int, Result]
    ) -> Iterator[Request]:
        unknown: set[int] = set()  # rows on which the predicate itself fails, such as text that is not UTF-8
        rows: list[int] = list(range(first_row, first_row + batch.num_rows))
        if self._mask is not None:
            wanted = self._mask(batch).to_pylist()
            unknown = {row for row, value in zip(rows, wanted, strict=True) if value is None}
            mask = pa.array([value is not False for value in wanted])
            rows = [row for row, value in zip(rows, wanted, strict=True) if value is not False]
            shard.filtered += batch.num_rows - len(rows)
            batch = filtered(batch, mask)
        shard.kept.append(batch.select(self._kept))
        for made in self._renderer.requests(batch, rows):
            if made.row in unknown:
                made = RowError(made.row, ErrorCode.BAD_VALUE, "input.filter cannot be evaluated on this row")
            elif isinstance(made, Request) and made.row in self._quarantined:
                words, tokens = self._quarantined[made.row], len(made.token_ids)
                made = RowError(made.row, ErrorCode.ENGINE_CRASH, words, tokens, made.request_hash)
            if (standing := known.get(made.row)) is not None:
                shard.put(standing)
            elif isinstance(made, RowError):
                shard.put(of_error(made, self._attempt))
            elif (journaled := self._journaled.get(made.row)) is not None and (
                journaled.request_hash == made.request_hash
            ):
                shard.put(journaled)
            else:
                yield made

    def _check_stop(self) -> None:
        if self._stop_asked.is_set():
            raise Stopped
