"""A running job in a terminal: on standard error, one progress bar or moving line, log lines above it."""

from __future__ import annotations

import re
import shutil
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from tqdm import tqdm

from batchjobs.accounts.units import clock, dollars
from batchjobs.supervision.progress import Progress

_WARNING = re.compile(r"\bWARNING\b")
_QUIET_S = 30.0  # without a terminal (cron, CI), one line this often


class Terminal:
    """A Reporter for people. Use as a context manager."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._is_tty = sys.stderr.isatty()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError, ValueError):
                self._bar.close()

    def progress(self, now: Progress) -> None:
        """Move the bar. Whoever reads it may be gone: that must not decide how a job ends."""
        with suppress(OSError, ValueError):
            self._show(now)

    def _show(self, now: Progress) -> None:
        if self._bar is None:
            interval = 0.1 if self._is_tty else _QUIET_S
            self._bar = tqdm(
                total=now.rows_total,
                initial=now.rows_reused,
                unit=" rows",
                dynamic_ncols=True,
                mininterval=interval,
                maxinterval=max(10.0, interval),
                smoothing=0.1,
            )
        self._bar.set_description_str(_description(now), refresh=False)
        self._bar.set_postfix_str(_postfix(now), refresh=False)
        self._bar.update(now.rows_done - self._bar.n)
        if self._is_tty:
            self._bar.refresh()

    def log(self, line: str) -> None:
        """Print a line without tearing the bar. vLLM warns of routine things at every start: those stay in the log."""
        if not _WARNING.search(line):
            with suppress(OSError, ValueError):
                tqdm.write(line, file=sys.stderr)


def _description(now: Progress) -> str:
    if now.phase == "starting":
        return f"starting the engine ({now.elapsed_s:.0f} s)"
    return now.phase


def _postfix(now: Progress) -> str:
    parts = [f"shards {now.shards_committed}/{now.shards_total}"]
    if now.output_tokens_per_s is not None:
        parts.append(f"{now.output_tokens_per_s:,.0f} tok/s")
    if now.errors:
        parts.append(f"errors {now.errors}")
    if now.usd_so_far is not None:
        parts.append(f"${now.usd_so_far:.3f}{_budget(now)}")
    if now.deadline is not None:
        parts.append(_deadline(now, now.deadline))
    return ", ".join(parts)


def _budget(now: Progress) -> str:
    if now.max_cost_usd is None:
        return ""
    forecast = f", all done at {dollars(now.usd_forecast)}" if now.usd_forecast is not None else ""
    return f" of {dollars(now.max_cost_usd)}{forecast}"


def _deadline(now: Progress, deadline: datetime) -> str:
    """When everything is done, beside when the run has to end."""
    today = datetime.now(UTC)
    forecast = f"all done {clock(now.ends_at, today)}, " if now.ends_at is not None else ""
    return f"{forecast}deadline {clock(deadline, today)}"


class Lines:
    """Lines about something far away, and a last one that moves. Without a terminal it is printed now and then."""

    def __init__(self) -> None:
        self._is_tty = sys.stderr.isatty()
        self._moving, self._printed_at = "", float("-inf")

    def line(self, text: str) -> None:
        """Print a line above the moving one."""
        self._write(f"\r\x1b[K{text}\n{self._moving}" if self._is_tty else f"{text}\n")

    def moving(self, text: str) -> None:
        """Put a text into the place of the one before."""
        if self._is_tty:
            self._moving = text[: shutil.get_terminal_size().columns - 1]
            self._write(f"\r\x1b[K{self._moving}")
        elif text != self._moving and time.monotonic() > self._printed_at + _QUIET_S:
            self._moving, self._printed_at = text, time.monotonic()
            self._write(f"{text}\n")

    def end(self) -> None:
        """What is printed from now on begins a line of its own."""
        if self._is_tty and self._moving:
            self._write("\n")
        self._moving = ""

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # whoever reads it may be gone
            sys.stderr.write(text)
            sys.stderr.flush()
