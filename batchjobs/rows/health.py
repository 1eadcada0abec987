"""What may be wrong with an answer that counts as good: the one definition for summaries and comparisons."""

from __future__ import annotations

import zlib

# Above this ratio Whisper takes a text for a loop (Radford et al. 2022, arXiv:2212.04356, section 4.5).
MOST_COMPRESSION = 2.4


def is_empty(text: str | None) -> bool:
    """Whether there is no text, or white space only."""
    return not text or text.isspace()


def is_repetitive(text: str | None) -> bool:
    """Whether zlib makes its UTF-8 bytes more than 2.4 times smaller. Short texts never are: zlib adds bytes of its own."""
    data = (text or "").encode("utf-8", "replace")
    return len(data) > MOST_COMPRESSION * len(zlib.compress(data))
