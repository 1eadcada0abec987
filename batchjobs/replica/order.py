"""In which order the requests of a window are fed. Never changes the order of results, row identity or resume."""

from __future__ import annotations

from collections.abc import Sequence

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.engines.base import Request
from batchjobs.replica.prefixes import PrefixTree
from batchjobs.replica.window import Fed
from schemas.job import Order
from schemas.summary import OrderFigures

_WORTH_IT = 0.1  # share of the prompt tokens that only a good order saves
_UNEVEN = 2.0  # longest expected answer over the mean: above it, one that is begun late runs on alone


def expected_answer(request: Request, lengths: OutputLengths) -> float:
    """Output tokens that the finished rows let expect of a request."""
    return lengths.expected(len(request.token_ids), request.max_tokens)


def expected_tokens(request: Request, lengths: OutputLengths) -> float:
    """Expected total work of a request in tokens: its prompt plus its answer."""
    return len(request.token_ids) + expected_answer(request, lengths)


class Ordering:
    """Orders windows. The first one settles what `auto` is."""

    def __init__(
        self,
        order: Order,
        prefix_caching: bool,
        kv_cache_tokens: int | None,
        earlier: OutputLengths,
        now: OutputLengths,
    ) -> None:
        """`earlier` is what earlier attempts and runs have learnt, `now` what this attempt learns as it goes on."""
        self.chosen = None if order == "auto" else OrderFigures(strategy=order, reason="asked for")
        self._prefix_caching, self._kv_cache_tokens = prefix_caching, kv_cache_tokens
        self._earlier, self._now = earlier, now

    @property
    def looks_far(self) -> bool:
        """Whether a larger window helps: more of what shares a prefix can be brought together."""
        return self.chosen is not None and self.chosen.strategy == "prefix"

    def ordered(self, fed: Fed) -> Fed:
        """The requests in feeding order."""
        if not fed or (self.chosen is not None and self.chosen.strategy == "input"):
            return fed
        lengths = OutputLengths(self._earlier.plain())
        lengths.merge(self._now.plain())
        tree = None
        if self.chosen is None:
            answers = [expected_answer(request, lengths) for request, _ in fed]
            tree = _tree(fed) if self._prefix_caching else None
            self.chosen = choose(tree, self._kv_cache_tokens, answers)
        if self.chosen.strategy == "input":
            return fed
        work = [expected_tokens(request, lengths) for request, _ in fed]
        if self.chosen.strategy == "prefix":
            return [fed[i] for i in (tree or _tree(fed)).depth_first(work)]
        longest_first = self.chosen.strategy == "longest_first"
        return [fed[i] for i in sorted(range(len(fed)), key=work.__getitem__, reverse=longest_first)]


def _tree(fed: Fed) -> PrefixTree:
    return PrefixTree([request.token_ids for request, _ in fed])


def choose(tree: PrefixTree | None, kv_cache_tokens: int | None, answers: Sequence[float]) -> OrderFigures:
    """What `auto` is for such prompts (None: the prefix cache is off) and expected answers (output tokens), and why.

    `prefix`, if it saves enough that another order would lose. Else `longest_first` for answers of uneven length: begun
    late, a long one would run on alone. Else `input`: long prompts side by side leave the engine less to mix with them.
    """
    if tree is None:
        return _by_answers("the prefix cache is off", answers)
    saved = tree.shared_tokens - tree.common_tokens
    share = saved / tree.total_tokens if tree.total_tokens else 0.0
    shared = f"{share:.0%} of the {tree.total_tokens:,} prompt tokens looked at are prefixes shared by some of the rows"
    if share < _WORTH_IT:
        return _by_answers(f"{shared}, less than {_WORTH_IT:.0%}", answers)
    if kv_cache_tokens is None:
        why = "how many tokens the KV cache holds is not known"
        return OrderFigures(strategy="prefix", reason=f"{shared}, and {why}")
    held = f"the KV cache of {kv_cache_tokens:,} tokens"
    distinct = f"the {tree.distinct_tokens:,} different ones"
    if tree.distinct_tokens <= kv_cache_tokens:
        return _by_answers(f"{shared}, but {held} has room for {distinct}", answers)
    return OrderFigures(strategy="prefix", reason=f"{shared}, and {held} has no room for {distinct}")


def _by_answers(why: str, answers: Sequence[float]) -> OrderFigures:
    longest, mean = max(answers), sum(answers) / len(answers)
    compared = f"the longest expected answer has {longest:,.0f} tokens, the mean {mean:,.0f}"
    return OrderFigures(strategy="longest_first" if longest > _UNEVEN * mean else "input", reason=f"{why}; {compared}")
