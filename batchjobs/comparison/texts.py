"""How alike two answers are."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from functools import cache
from itertools import takewhile

# Scripts that put no spaces between words: each character counts as one.
_UNSPACED = re.compile(r"([\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


@cache
def _punctuation() -> dict[int, str]:
    """Every punctuation character (Unicode categories P…) -> a space."""
    return {n: " " for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)).startswith("P")}


def words(text: str) -> list[str]:
    """What white space separates; of Chinese and Japanese each character."""
    return _UNSPACED.sub(r" \1 ", text).split()


def normalised_words(text: str) -> list[str]:
    """Words without regard to Unicode form (NFKC), case and punctuation."""
    return words(unicodedata.normalize("NFKC", text).casefold().translate(_punctuation()))


def f1(before: list[str], now: list[str]) -> float:
    """Harmonic mean of precision and recall over words, whatever their order: the F1 of SQuAD (Rajpurkar et al. 2016,
    arXiv:1606.05250, section 6.1, there without articles). 1 if both are empty, 0 if one is.
    """
    if not before or not now:
        return float(not before and not now)
    common = (Counter(before) & Counter(now)).total()
    return 2 * common / (len(before) + len(now))


def common_beginning(before: list[str], now: list[str]) -> int:
    """How many words both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))
