"""A run over time in little memory: equal steps, which become twice as long when there are too many of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.summary import Timeline

_MOST = 240
_FIRST_STEP_S = 1.0


@dataclass
class _Step:
    """What a step has seen; areas are a level times the seconds that it lasted."""

    running: float = 0.0
    waiting: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    rows_done: int | None = None
    kv_cache: dict[int, tuple[float, float]] = field(default_factory=dict)  # by replica: area, seconds

    def add(self, other: _Step) -> None:
        """Count what another one has seen; if both know `rows_done`, the other is the later one."""
        self.running += other.running
        self.waiting += other.waiting
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.rows_done = self.rows_done if other.rows_done is None else other.rows_done
        for replica, (area, seconds) in other.kv_cache.items():
            before = self.kv_cache.get(replica, (0.0, 0.0))
            self.kv_cache[replica] = before[0] + area, before[1] + seconds

    def kv_cache_usage(self) -> float | None:
        """Mean use of the fullest."""
        return max((area / seconds for area, seconds in self.kv_cache.values() if seconds), default=None)


class TimelineRecorder:
    """Adds up intervals, of one replica each and in any order. Times are seconds since the run began."""

    def __init__(self) -> None:
        self._step_s = _FIRST_STEP_S
        self._steps: list[_Step] = []
        self._end = 0.0

    def interval(
        self,
        replica: int,
        begin: float,
        end: float,
        running: float,
        waiting: float,
        kv_cache_usage: float | None,
        prompt_tokens: int,
        output_tokens: int,
    ) -> None:
        """From `begin` to `end`, which is later, a replica had so many requests and did so many tokens, evenly."""
        self._reach(end)
        for step, seconds in self._steps_of(begin, end):
            share = seconds / (end - begin)
            kv_cache = {} if kv_cache_usage is None else {replica: (kv_cache_usage * seconds, seconds)}
            step.add(
                _Step(
                    running=running * seconds,
                    waiting=waiting * seconds,
                    prompt_tokens=prompt_tokens * share,
                    output_tokens=output_tokens * share,
                    kv_cache=kv_cache,
                )
            )

    def done(self, now: float, rows: int) -> None:
        """So many rows are done by now."""
        self._reach(now)
        self._steps[self._index(now)].rows_done = rows

    def _steps_of(self, begin: float, end: float) -> Iterator[tuple[_Step, float]]:
        """The steps that an interval touches, and for how many seconds each."""
        for index in range(self._index(begin), self._index(end) + 1):
            first, last = index * self._step_s, (index + 1) * self._step_s
            yield self._steps[index], max(0.0, min(end, last) - max(begin, first))

    def _index(self, time: float) -> int:
        return min(int(time / self._step_s), len(self._steps) - 1)

    def _reach(self, end: float) -> None:
        self._end = max(self._end, end)
        while self._end >= _MOST * self._step_s:
            self._step_s *= 2
            pairs = [self._steps[index : index + 2] for index in range(0, len(self._steps), 2)]
            for first, *second in pairs:
                for step in second:
                    first.add(step)
            self._steps = [pair[0] for pair in pairs]
        while len(self._steps) * self._step_s <= self._end:
            self._steps.append(_Step())

    def timeline(self) -> Timeline:
        """What it was like so far; the last step may be cut short by the end, and its means are over what there is."""
        if not self._end:
            return Timeline()
        steps = self._steps
        lengths = [min(self._step_s, self._end - index * self._step_s) for index in range(len(steps))]
        if lengths[-1] <= 0:  # the end lies just on the border
            steps, lengths = steps[:-1], lengths[:-1]
        rows_done, rows = [], 0
        for step in self._steps:
            rows = rows if step.rows_done is None else step.rows_done
            rows_done.append(rows)
        rows_done[len(steps) - 1] = rows
        both = list(zip(steps, lengths, strict=True))
        return Timeline(
            step_s=self._step_s,
            running=[step.running / seconds for step, seconds in both],
            waiting=[step.waiting / seconds for step, seconds in both],
            kv_cache_usage=[step.kv_cache_usage() for step in steps],
            prompt_tokens_per_s=[step.prompt_tokens / seconds for step, seconds in both],
            output_tokens_per_s=[step.output_tokens / seconds for step, seconds in both],
            rows_done=rows_done[: len(steps)],
        )
