"""What `auto` means for this job on this device: each setting with its reason, decided before the engine starts.

Pure rules: what they look at is gathered by `survey.py`. A value of None leaves the setting to vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchjobs.settings.capacity import NOTHING, Capacity, Learnt
from batchjobs.settings.device import GIB, Device
from batchjobs.settings.in_force import Settings
from batchjobs.settings.measured import Measured
from batchjobs.settings.model_config import KvBytes, kv_heads
from batchjobs.settings.sample import Sample
from batchjobs.settings.speed import Speed, compiling
from batchjobs.settings.weights import Weights
from schemas.job import JobSpec
from schemas.summary import Decision

Decisions = dict[str, Decision]

_GRAPH_SEQS = 512  # vLLM captures CUDA graphs for at most so many sequences; bigger batches run without
_ROUND_LEN = 256  # tokens that max_model_len is rounded up to
_MARGIN = 2  # the sample may have missed the longest row: a restart costs more than some room
_COUNTS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")

_NO_CACHE = KvBytes(None, "there is no KV cache")


@dataclass(frozen=True)
class Facts:
    """What is known before the engine starts."""

    job: JobSpec  # references resolved
    device: Device
    capacity: Capacity
    max_len: int | None  # the model's own longest context
    plain: bool  # attention of the common kind, text only: its limits are known
    speed: Speed
    sample: Sample
    rows: int  # left to be generated, at the most
    config: Any | None = None  # of the model
    kv: KvBytes = _NO_CACHE
    weights: Weights | None = None
    measured: Measured | None = None  # by earlier runs
    learnt: Learnt = NOTHING  # of their engines' memory
    in_force: JobSpec | None = None  # with the memory settings that deaths have taught

    @property
    def own_weights(self) -> int | None:
        """Bytes of the weights on one device."""
        size = self.job.engine.tensor_parallel_size
        return self.weights.of_one_device(size, kv_heads(self.config)) if self.weights is not None else None

    def seqs_and_tokens(self) -> tuple[int, int]:
        """vLLM 0.32's own max_num_seqs and max_num_batched_tokens for offline use (`EngineArgs.get_batch_defaults`)."""
        twice = 2 if self.job.engine.extra.get("performance_mode") == "throughput" else 1
        if self.device.kind == "cpu":
            twice *= self.job.engine.tensor_parallel_size
            return 256 * twice, 4096 * twice
        memory = self.device.memory_bytes or 0
        large = memory >= 160 * GIB or (memory >= 70 * GIB and "a100" not in self.device.name.lower())
        return (1024 * twice, 16_384 * twice) if large else (256 * twice, 8192 * twice)


def decide(facts: Facts) -> Decisions:
    """Every setting that the job leaves open."""
    if facts.job.engine.kind == "echo":
        return {"max_model_len": max_model_len(facts)} if _is_auto_len(facts.job) else {}
    found: Decisions = {}
    if _is_auto_len(facts.job):
        found["max_model_len"] = max_model_len(facts)
    if facts.job.engine.enforce_eager is None:
        found["enforce_eager"] = enforce_eager(facts)
    if facts.job.engine.max_num_seqs == "auto":
        eager = found["enforce_eager"].value if "enforce_eager" in found else facts.job.engine.enforce_eager
        found["max_num_seqs"] = max_num_seqs(facts, bool(eager))
    if facts.job.engine.max_num_batched_tokens == "auto":
        seqs = found["max_num_seqs"].value if "max_num_seqs" in found else facts.job.engine.max_num_seqs
        found["max_num_batched_tokens"] = max_num_batched_tokens(facts, seqs if isinstance(seqs, int) else None)
    return found


def _is_auto_len(job: JobSpec) -> bool:
    return job.model is not None and job.model.max_model_len == "auto"


def max_model_len(facts: Facts) -> Decision:
    """Twice what the longest sampled row may need, at most the model's own and what the KV cache holds."""
    sample, own = facts.sample, facts.max_len
    if not sample.totals:
        return Decision(value=None, reason="No row of the sample can be generated, so the model's own length stays.")
    if own is None:
        return Decision(value=None, reason="The model's configuration names no longest context.")
    wanted = _up(_MARGIN * sample.longest, _ROUND_LEN)
    why = f"The longest of {len(sample.totals):,} sampled rows may need {sample.longest:,} tokens, and with a margin"
    held = facts.capacity.tokens
    if held is not None and held < min(wanted, own):
        return Decision(value=max(1, held), reason=f"{why} {wanted:,}, but the KV cache holds {held:,}.")
    if wanted >= own:
        return Decision(value=None, reason=f"{why} {wanted:,}, so the model's own {own:,} stay.")
    return Decision(value=wanted, reason=f"{why} {wanted:,}; the model's own length is {own:,}.")


def max_num_seqs(facts: Facts, eager: bool) -> Decision:
    """What fits the KV cache at P95 of the rows' tokens, within the bounds of vLLM, of CUDA graphs and of the job."""
    if facts.device.kind == "other":
        return Decision(value=None, reason="Only vLLM knows the device.")
    if facts.capacity.tokens is None:
        return Decision(value=None, reason=f"The KV cache's size is not known: {facts.capacity.why}.")
    if not facts.sample.totals:
        return Decision(value=None, reason="No row of the sample can be generated.")
    p95 = facts.sample.p95()
    fits = max(1, facts.capacity.sequences(p95) or 0)
    gpu = facts.device.kind == "gpu"
    bounds = {
        f"{facts.capacity.why}, and P95 of {len(facts.sample.totals):,} sampled rows is {p95:,}": (
            fits - fits % 8 if gpu and fits > 8 else fits
        ),
        "vLLM's own number here": facts.seqs_and_tokens()[0],
        "rows left": max(1, _up(facts.rows, 8) if gpu else facts.rows),
    }
    batched = facts.job.engine.max_num_batched_tokens
    if isinstance(batched, int):
        bounds["max_num_batched_tokens, which vLLM wants to be no less"] = batched
    if gpu and not eager:
        bounds["the largest batch with CUDA graphs"] = _graph_seqs(facts.job)
    # vLLM refuses fewer than engine.extra.max_num_active_seqs.
    value = max(min(bounds.values()), int(facts.job.engine.extra.get("max_num_active_seqs") or 1))
    listed = "; ".join(f"{bound:,} ({what})" for what, bound in sorted(bounds.items(), key=lambda item: item[1]))
    return Decision(value=value, reason=f"The least of {listed}.")


def _graph_seqs(job: JobSpec) -> int:
    return int(job.engine.extra.get("max_cudagraph_capture_size") or _GRAPH_SEQS)


def max_num_batched_tokens(facts: Facts, seqs: int | None) -> Decision:
    """vLLM's own for the device, but no less than max_num_seqs and no more than the job or the KV cache can use."""
    least, own = seqs or 1, facts.seqs_and_tokens()[1]
    if facts.device.kind == "other" or (not facts.plain and least <= own):
        return Decision(value=None, reason="Only vLLM knows the limits of this model and device.")
    if facts.job.engine.extra.get("enable_chunked_prefill") is False:
        return Decision(value=None, reason="Without chunked prefill it must hold a whole prompt.")
    bounds = {"vLLM's own number here": own}
    if facts.capacity.tokens:
        bounds["the tokens that the KV cache holds"] = facts.capacity.tokens
    if facts.sample.prompts and seqs is not None:
        longest = max(facts.sample.prompts)
        what = f"{_MARGIN} x {seqs:,} sequences x {longest:,}, the longest of {len(facts.sample.prompts):,} prompts"
        bounds[what] = _up(_MARGIN * seqs * longest, _ROUND_LEN)
    what, value = min(bounds.items(), key=lambda item: item[1])
    if value < least:
        return Decision(value=least, reason=f"vLLM wants no less than max_num_seqs; {value:,} ({what}) would do.")
    others = "".join(f"; {bound:,} ({other})" for other, bound in bounds.items() if other != what)
    return Decision(value=value, reason=f"The least of {value:,} ({what}){others}.")


def enforce_eager(facts: Facts) -> Decision:
    """No compilation and no CUDA graphs if they cost more time than they save."""
    for name in ("compilation_config", "optimization_level"):
        if name in facts.job.engine.extra:
            return Decision(value=False, reason=f"engine.extra.{name} says how to compile.")
    if facts.device.kind == "other":
        return Decision(value=None, reason="Only vLLM knows the device.")
    tokens = facts.sample.tokens_of(facts.rows)
    cost_s, saved_s, eager_s = compiling(facts.device, facts.speed, tokens)
    what = "Compiling and CUDA graphs take" if facts.device.kind == "gpu" else "Compiling takes"
    reason = (
        f"{what} about {cost_s:.0f} s and would save about {saved_s:,.0f} s of {eager_s:,.0f} s: {tokens:,.0f} tokens "
        f"at {facts.speed.eager_tokens_per_s(facts.device):,.0f} per second ({facts.speed.why})."
    )
    return Decision(value=saved_s < cost_s, reason=reason)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def settings_of(decisions: Decisions) -> Settings:
    """The decided values, those that are left to vLLM left out."""
    return {name: decision.value for name, decision in decisions.items() if decision.value is not None}


def lines(decisions: Decisions) -> list[str]:
    """For people."""
    return [f"{name}: {decision.text()}" for name, decision in decisions.items()]


def merged(decisions: Decisions, learnt: Settings) -> Settings:
    """The decided settings with what deaths have taught over them. It is a limit: the lower one counts."""
    decided = settings_of(decisions)
    both = [name for name in _COUNTS if name in decided and name in learnt]
    return {**decided, **learnt, **{name: min(decided[name], learnt[name]) for name in both}}


def lengthened(decisions: Decisions, length: int, why: str) -> Decisions:
    """With a longer context, after a row that the sample had not foreseen; `why` says which.

    A replica that had started before another one's discovery may ask for less: the longer one stays.
    """
    before = decisions.get("max_model_len")
    if before is not None and (before.value or 0) >= length:
        return decisions
    return {
        **decisions,
        "max_model_len": Decision(value=length, reason=f"Raised to {length:,}: {why.splitlines()[0]}."),
    }
