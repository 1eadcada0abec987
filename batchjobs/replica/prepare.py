"""Ahead of the engine, on a thread of its own: read shards, render, tokenise, order a window."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from batchjobs.data.columns import filtered
from batchjobs.data.reader import ShardReader
from batchjobs.engines.base import Request
from batchjobs.replica.duplicates import distinct, may_share
from batchjobs.replica.order import Ordering
from batchjobs.replica.window import Fed, OpenShard, Window
from batchjobs.replica.window_size import WindowSize
from batchjobs.rows.prompts import Renderer, RowError
from batchjobs.rows.results import Result, of_error
from schemas.job import Deduplicate
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
        ordering: Ordering,
        deduplicate: Deduplicate,
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
        self.ordering = ordering
        self._shard_by_shard = shard_by_shard
        self._deduplicate, self._max_num_seqs, self._attempt = deduplicate, max_num_seqs, attempt
        self._journaled, self._quarantined, self._groups = journaled, quarantined, groups
        self._standing = standing
        self._poison: dict[str, str] = {}  # request_hash of a quarantined row -> the engine's last words

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
        """The shards of a window, or what is left; and whether there is more."""
        prepared: list[tuple[OpenShard, list[Request]]] = []
        size = WindowSize(self._max_num_seqs, self._shard_by_shard)
        while not size.is_full(self.ordering.looks_far):
            self._check_stop()
            index = self._next_shard()
            if index is None:
                return prepared, False
            prepared.append(self._prepare(index))
            size.add(*prepared[-1])
        return prepared, True

    def _window(self, prepared: list[tuple[OpenShard, list[Request]]]) -> Fed:
        fed = [(request, shard) for shard, requests in prepared for request in requests]
        fed, followers = distinct(self._suspects_first(self._without_poison(fed)), self._deduplicate)
        fed = self._suspects_first(self.ordering.ordered(fed))
        window = Window(len(prepared), self._places, followers)
        for shard, _ in prepared:
            shard.window = window
            self._opened(shard)
        return fed

    def _suspects_first(self, fed: Fed) -> Fed:
        """Suspects group by group, then the others as they were. So no suspect becomes the copy of another row."""
        if not self._groups:
            return fed
        return sorted(fed, key=lambda one: self._groups.get(one[0].row, len(self._groups)))

    def _without_poison(self, fed: Fed) -> Fed:
        """Without requests identical to one on which the engine died: they get its error, and spare the engine."""
        left: Fed = []
        for request, shard in fed:
            words = self._poison.get(request.request_hash) if may_share(request, self._deduplicate) else None
            if words is None:
                left.append((request, shard))
            else:
                shard.put(of_error(_crashed(request, words), self._attempt))
                shard.missing -= 1
        return left

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
                words = self._poison[made.request_hash] = self._quarantined[made.row]
                made = _crashed(made, words)
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


def _crashed(request: Request, words: str) -> RowError:
    return RowError(request.row, ErrorCode.ENGINE_CRASH, words, len(request.token_ids), request.request_hash)
