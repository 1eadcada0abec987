"""A report is passed on: what looks like a secret stays out of it, also where a person wrote it into the job file."""

from __future__ import annotations

import os
import re
from typing import Any

HIDDEN = "•••"
_SECRET = re.compile(
    r"key|secret|token(?!s|i|_id)|passw|pwd|credential|auth|signature|connection_string|cookie|private", re.IGNORECASE
)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_IN_URL = (
    (re.compile(r"(://)[^/@\s]+@"), rf"\1{HIDDEN}@"),  # user and password
    (re.compile(rf"([?&][^=&\s]*(?:{_SECRET.pattern})[^=&\s]*=)[^&\s]+", re.IGNORECASE), rf"\1{HIDDEN}"),
)
_FREE_KEYS = ("storage_options", "env", "extra")  # sections whose keys are not ours
_SHORTEST = 8  # characters: something shorter is hidden in its own place only


class Redactor:
    """Knows the secrets of one job: those in its spec, and what its references stand for in this environment."""

    def __init__(self, spec: dict[str, Any]) -> None:
        found: set[str] = set()
        self.spec: dict[str, Any] = _masked(spec, found)
        variables = {name for value in found for name in _REFERENCE.findall(value)}
        values = {*(os.environ.get(name, "") for name in variables), *found}
        self._secrets = sorted((value for value in values if len(value) >= _SHORTEST), key=lambda v: (-len(v), v))

    def text(self, text: str) -> str:
        """The text without any of them."""
        for secret in self._secrets:
            if not _REFERENCE.fullmatch(secret):
                text = text.replace(secret, HIDDEN)
        return _without_credentials(text)


def _masked(value: Any, found: set[str], key: str = "", free: bool = False) -> Any:
    """The value without texts under keys that are named like secrets, where keys are not ours; these are `found`."""
    if isinstance(value, dict):
        return {
            name: _masked(item, found, f"{key}.{name}" if free else key, free or name in _FREE_KEYS)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_masked(item, found, key, free) for item in value]
    if _SECRET.search(key) and isinstance(value, str | int) and not isinstance(value, bool):
        found.add(str(value))
        return value if _REFERENCE.fullmatch(str(value)) else HIDDEN
    return _without_credentials(value) if isinstance(value, str) else value


def _without_credentials(text: str) -> str:
    for pattern, hidden in _IN_URL:
        text = pattern.sub(hidden, text)
    return text
