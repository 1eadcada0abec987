"""What may be wrong with an answer that the engine has given, from its text alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from batchjobs.rows.results import Result
from schemas.records import GOOD_FINISH_REASONS, ErrorCode
from schemas.summary import Health

# Whisper's threshold (Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022, section 4.5)
# is for texts of half a minute of speech. Ordinary prose passes it by its length alone: of 8,000 bytes nearly all,
# of 500 almost none. So the end of an answer is looked at, where one that has lost its way repeats itself.
_REPETITIVE = 2.4
_LOOKED_AT = 500  # bytes
_LEAST = 100  # bytes; shorter ones say too little


def health_of(results: Iterable[Result | None]) -> Health:
    """Counts over rows. Those without an answer of the engine are not looked at."""
    answers = empty = truncated = invalid = repetitive = 0
    for result in results:
        if result is None or result.finish_reason not in GOOD_FINISH_REASONS:
            continue
        answers += 1
        empty += not (result.output or "").strip()
        truncated += result.finish_reason == "length"
        invalid += result.error_code == ErrorCode.INVALID_OUTPUT
        repetitive += result.finish_reason == "repetition" or is_repetitive(result.output or "")
    return Health(answers=answers, empty=empty, truncated=truncated, invalid=invalid, repetitive=repetitive)


def is_repetitive(text: str) -> bool:
    """Whether zlib makes the end of the text, as UTF-8, more than 2.4 times smaller."""
    if len(text) < _LEAST // 4:  # no character has more than four bytes
        return False
    end = text[-_LOOKED_AT:].encode("utf-8", "replace")[-_LOOKED_AT:]
    return len(end) >= _LEAST and len(end) > _REPETITIVE * len(zlib.compress(end))
