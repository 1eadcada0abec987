"""Many requests in one call: what `Engine.generate` is made of, for every engine. Imports no vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from batchjobs.engines.base import Engine, Outcome, Request, RequestRejected, Working


def submit_and_step(engine: Engine, requests: list[Request], working: Working) -> list[Outcome]:
    """Feed the requests one by one, so that a bad one costs only itself, and step until the last is answered."""
    outcomes: dict[int, Outcome] = {}
    for request in requests:
        try:
            engine.submit(request)
        except RequestRejected as problem:
            outcomes[request.row] = problem
    while unanswered := engine.unfinished():
        outcomes.update({done.row: done for done in engine.step()})
        working(unanswered)
    return [outcomes[request.row] for request in requests]


class SignsOfLife:
    """Passed to `LLM.generate` as `use_tqdm`: makes progress bars that nobody sees, and that tell `working`."""

    def __init__(self, requests: int, working: Working) -> None:
        self.stepping = False  # every request is in the engine
        self._unanswered, self._working = requests, working

    def __call__(self, iterable: Iterable[Any] | None = None, **_: Any) -> Any:
        """A bar around the requests that are being added, or one for those that are being answered."""
        if iterable is not None:
            return self._adding(iterable)
        self.stepping = True
        return _Bar(self)

    def _adding(self, iterable: Iterable[Any]) -> Iterator[Any]:
        for item in iterable:
            self.stepped()
            yield item

    def stepped(self) -> None:
        """The engine ended a step."""
        self._working(self._unanswered)

    def answered(self, count: int) -> None:
        """The engine answered so many requests."""
        self._unanswered -= count
        self.stepped()


class _Bar:
    """As much of a `tqdm` as `LLM.generate` uses."""

    def __init__(self, signs: SignsOfLife) -> None:
        self.n = 0
        self.postfix = ""
        self.format_dict = {"elapsed": float("inf")}  # it divides by it, to show a speed
        self._signs = signs

    def update(self, count: int) -> None:
        self.n += count
        self._signs.answered(count)

    def refresh(self) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing is shown."""
