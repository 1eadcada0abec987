"""What was measured, as it is measured: one JSON file, written after every record, so that a stop loses nothing."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Results:
    """Records by section. A section that is measured again replaces what the file has of it, the others stay."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.sections: dict[str, Record] = {}
        if file is not None and file.exists():
            self.sections = json.loads(file.read_text(encoding="utf-8"))

    def begin(self, section: str) -> Section:
        """A new section, empty."""
        kept = {"began": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "seconds": 0.0, "machine": machine(),
                "facts": {}, "records": [], "failures": [], "skipped": []}  # fmt: skip
        self.sections[section] = kept
        return Section(self, kept)

    def save(self) -> None:
        """Replace the file, whole."""
        if self._file is not None:
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(self.sections, indent=1) + "\n", encoding="utf-8")
            new.replace(self._file)


class Section:
    """One section while it is measured. Whatever is added is on the terminal and in the file at once."""

    def __init__(self, results: Results, kept: Record) -> None:
        self._results, self._kept, self._began = results, kept, time.monotonic()

    def add(self, record: Record) -> None:
        """One measurement."""
        self._kept["records"].append(record)
        self._save("  ", record)

    def fact(self, **facts: Any) -> None:
        """What holds for the whole section."""
        self._kept["facts"].update(facts)
        self._save("  ", facts)

    def fail(self, what: str) -> None:
        """Something could not be measured, and why; the rest goes on."""
        self._kept["failures"].append(what)
        self._save("  could not be measured: ", what)

    def skip(self, what: str) -> None:
        """Something is left out because this machine lacks what it needs."""
        self._kept["skipped"].append(what)
        self._save("  left out: ", what)

    def _save(self, before: str, shown: Any) -> None:
        self._kept["seconds"] = round(time.monotonic() - self._began, 1)
        self._results.save()
        print(before + (shown if isinstance(shown, str) else _short(shown)), flush=True)


def _short(record: Record) -> str:
    return "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in record.items()
                     if not isinstance(v, (dict, list)))  # fmt: skip


def machine() -> Record:
    """The machine in general words."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": cores, "memory_gib": round(memory / 2**30), "architecture": platform.machine(),
            "python": platform.python_version(), "load": round(os.getloadavg()[0], 1)}  # fmt: skip
