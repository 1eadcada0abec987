"""The least time that a device needs for the work: what it can compute and what it can read, whichever takes longer.

The roofline model (Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009). An engine step reads the
weights once, whatever runs in it, and a token's attention reads the KV cache of all tokens before it; a token costs two
operations per value of the weights that it passes. Attention's own operations, the output layer, communication between
devices and the host's work are left out, so that this stays a bound.
"""

from __future__ import annotations

from batchjobs.forecast.work import Work
from batchjobs.settings.gpus import Gpu
from batchjobs.settings.model_config import active_experts
from batchjobs.settings.sizing import Facts


def least_seconds(facts: Facts, gpu: Gpu, work: Work, seqs: int) -> tuple[float, str] | None:
    """Seconds of generating on one engine with `seqs` requests at a time, and why; None without weights at hand."""
    weights, size = facts.weights, facts.job.engine.tensor_parallel_size
    if weights is None or not weights.linear_values:
        return None
    new = 1 - work.copies
    prompts = work.prompt_tokens.expected * new * (1 - work.shared_prefix)
    outputs = work.output_tokens.expected * new
    if not work.knows_answers:
        outputs = 0.0  # an answer may be one token long
    share = active_experts(facts.config)
    active = weights.linear_values - weights.expert_values * (1 - share)
    eight_bits = weights.is_quantised and weights.linear <= 1.1 * weights.linear_values
    compute_s = 2 * active * (prompts + outputs) / (gpu.flops_for(eight_bits) * size)
    steps = outputs / min(max(1.0, work.requests), seqs)
    each_step = weights.linear / weights.linear_values * active / size  # bytes
    mean_context = (work.prompt_tokens.expected + work.output_tokens.expected / 2) / max(1.0, work.requests)
    read = steps * each_step + outputs * mean_context * (facts.kv.per_token or 0)
    read_s = read / gpu.bytes_per_s
    what, least = ("reading", read_s) if read_s > compute_s else ("computing", compute_s)
    speed = f"{gpu.bytes_per_s / 1e9:,.0f} GB/s and {gpu.flops_for(eight_bits) / 1e12:,.0f} TFLOP/s"
    return least, f"{what} on {size} x {gpu.name} ({speed}, {seqs:,} requests at a time)"
