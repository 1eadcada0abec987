"""In which order the requests of a window are fed. Never changes the order of results, row identity or resume."""

from __future__ import annotations

from batchjobs.engines.base import Request
from batchjobs.lengths import OutputLengths
from batchjobs.prefixes import PrefixTree
from batchjobs.window import Fed
from schemas.job import Order
from schemas.summary import OrderFigures

_WORTH_IT = 0.1  # share of the prompt tokens that only a good order saves


def expected_tokens(request: Request, lengths: OutputLengths) -> float:
    """Expected total work of a request in tokens: its prompt plus the answer that the finished rows let expect."""
    prompt_tokens = len(request.token_ids)
    return prompt_tokens + lengths.expected(prompt_tokens, request.max_tokens)


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
        if not fed:
            return fed
        if self.chosen is None:
            self.chosen = choose(_tree(fed), self._prefix_caching, self._kv_cache_tokens)
        if self.chosen.strategy == "input":
            return fed
        work = self._work(fed)
        if self.chosen.strategy == "prefix":
            return [fed[i] for i in _tree(fed).depth_first(work)]
        longest_first = self.chosen.strategy == "longest_first"
        return [fed[i] for i in sorted(range(len(fed)), key=work.__getitem__, reverse=longest_first)]

    def _work(self, fed: Fed) -> list[float]:
        lengths = OutputLengths(self._earlier.plain())
        lengths.merge(self._now.plain())
        return [expected_tokens(request, lengths) for request, _ in fed]


def _tree(fed: Fed) -> PrefixTree:
    return PrefixTree([request.token_ids for request, _ in fed])


def choose(tree: PrefixTree, prefix_caching: bool, kv_cache_tokens: int | None) -> OrderFigures:
    """What `auto` is for such prompts, and why.

    `prefix`, if it saves enough that another order would lose; else `longest_first`: a short tail, and memory trouble
    in the first minute.
    """
    saved = tree.shared_tokens - tree.common_tokens
    share = saved / tree.total_tokens if tree.total_tokens else 0.0
    shared = f"{share:.0%} of the {tree.total_tokens:,} prompt tokens looked at are prefixes shared by some of the rows"
    if not prefix_caching:
        return OrderFigures(strategy="longest_first", reason="the prefix cache is off")
    if share < _WORTH_IT:
        return OrderFigures(strategy="longest_first", reason=f"{shared}, less than {_WORTH_IT:.0%}")
    if kv_cache_tokens is None:
        why = "how many tokens the KV cache holds is not known"
        return OrderFigures(strategy="prefix", reason=f"{shared}, and {why}")
    held = f"the KV cache of {kv_cache_tokens:,} tokens"
    distinct = f"the {tree.distinct_tokens:,} different ones"
    if tree.distinct_tokens <= kv_cache_tokens:
        return OrderFigures(strategy="longest_first", reason=f"{shared}, but {held} has room for {distinct}")
    return OrderFigures(strategy="prefix", reason=f"{shared}, and {held} has no room for {distinct}")
