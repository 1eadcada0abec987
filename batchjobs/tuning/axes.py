"""Which settings are worth a start of the engine, one axis after the other. Pure rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from batchjobs.settings.in_force import Settings
from schemas.tuning import Setting, Trial, Variant

_FIRST = 256  # where nobody knows how many sequences fit; vLLM's own number for most devices


@dataclass(frozen=True)
class Room:
    """What is known of a variant before anything is tried."""

    derived: int | None = None  # max_num_seqs as `auto` would have it
    fits: int | None = None  # sequences of the rows' mean tokens that the KV cache holds
    fits_why: str = ""
    longest_prompt: int | None = None  # tokens, of the rows that were looked at
    learnt: Settings = field(default_factory=dict)  # what earlier runs had to lower


@dataclass(frozen=True)
class Axis:
    """Values of one setting to be tried, ascending, and those that are not, with the reason."""

    values: list[int]
    skipped: dict[int, str]


def seqs_axis(room: Room, own: int | None, asked: Sequence[int]) -> Axis:
    """`max_num_seqs`: what was asked for, else a quarter, half, all and twice of what fits, and the job's own."""
    values = set(asked) or _around(room.derived or own or _FIRST, own)
    skipped = {value: why for value in sorted(values) if (why := _no_room(room, value)) is not None}
    return Axis(sorted(values - skipped.keys()), skipped)


def _around(first: int, own: int | None) -> set[int]:
    """None so near to the job's own that it would tell nothing new."""
    values = {max(1, first // 4), max(1, first // 2), first, 2 * first}
    return values if own is None else {own, *(value for value in values if not 0.8 * own < value < 1.25 * own)}


def _no_room(room: Room, seqs: int) -> str | None:
    if room.fits is not None and seqs > room.fits:
        return f"no more than {room.fits:,} fit: {room.fits_why}"
    return _lowered(room, "max_num_seqs", seqs)


def _lowered(room: Room, name: str, value: int) -> str | None:
    most = room.learnt.get(name)
    return f"an earlier run had to go down to {most:,}" if most is not None and value > most else None


def tokens_axis(room: Room, measured: Trial, asked: Sequence[int]) -> Axis:
    """`max_num_batched_tokens` at the sequences of a trial: what was asked for, else half and twice of what it had."""
    now, seqs = measured.max_num_batched_tokens, measured.setting.max_num_seqs
    if now is None:
        return Axis([], {})
    values = set(asked) - {now} or {now // 2, 2 * now}
    skipped = {
        value: why for value in sorted(values) if (why := _no_tokens(room, measured, seqs, now, value)) is not None
    }
    return Axis(sorted(values - skipped.keys()), skipped)


def _no_tokens(room: Room, measured: Trial, seqs: int, now: int, value: int) -> str | None:
    if value < seqs:
        return f"vLLM wants no less than max_num_seqs, {seqs:,}"
    if measured.kv_cache_tokens is not None and value > max(now, measured.kv_cache_tokens):
        return f"the KV cache holds {measured.kv_cache_tokens:,} tokens"
    if room.longest_prompt is not None and value > now >= seqs * room.longest_prompt:
        return f"{now:,} hold the prompts of all {seqs:,} sequences already"
    return _lowered(room, "max_num_batched_tokens", value)


def known_to_fail(setting: Setting, trials: Sequence[Trial]) -> str | None:
    """Why a setting needs no try: no smaller one of its kind fitted the memory."""
    for trial in trials:
        smaller = trial.setting
        if trial.out_of_memory and smaller.variant == setting.variant and _at_least(setting, smaller):
            return f"max_num_seqs {smaller.max_num_seqs:,}{_tokens(smaller)} ran out of memory already"
    return None


def _at_least(setting: Setting, other: Setting) -> bool:
    tokens, others = setting.max_num_batched_tokens, other.max_num_batched_tokens
    more_tokens = tokens == others or (tokens is not None and others is not None and tokens >= others)
    return setting.max_num_seqs >= other.max_num_seqs and more_tokens


def _tokens(setting: Setting) -> str:
    tokens = setting.max_num_batched_tokens
    return f" with max_num_batched_tokens {tokens:,}" if tokens is not None else ""


def variants(models: Sequence[str], kv_cache_dtypes: Sequence[str]) -> list[Variant]:
    """The job's own first, then every other model with every KV dtype."""
    return [
        Variant(model=model, kv_cache_dtype=dtype)
        for model in dict.fromkeys([None, *models])
        for dtype in dict.fromkeys([None, *kv_cache_dtypes])
    ]
