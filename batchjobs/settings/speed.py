"""How long generating will take, roughly, and whether compiling pays for itself."""

from __future__ import annotations

from dataclasses import dataclass

from batchjobs.settings.device import Device
from batchjobs.settings.measured import Measured
from batchjobs.settings.weights import Weights
from schemas.job import JobSpec

# Seconds that compiling (and capturing CUDA graphs) takes, and how much faster it makes generating. The CPU's were
# measured with a model of 135 million parameters on 2 cores; the GPU's are rough.
_COMPILE_S = {"cpu": 45.0, "gpu": 60.0, "other": 60.0}
_GAIN = {"cpu": 0.09, "gpu": 0.5, "other": 0.5}
# Tokens/s without any measurement: so much divided by the bytes of the weights. On a CPU for each core (2,400 tokens/s
# with 269 MB on 2 cores were measured), on a GPU for each, and never more than the most that a scheduler keeps up with.
_RATE = {"cpu": 3.2e11, "gpu": 2e14, "other": 2e14}
_MOST = 50_000.0
_USUAL_WEIGHTS = 16e9  # bytes, of a model whose size is not known


@dataclass(frozen=True)
class Speed:
    """Prompt and output tokens per second of one engine."""

    tokens_per_s: float
    eager: bool  # whether that is without compilation
    why: str

    def eager_tokens_per_s(self, device: Device) -> float:
        """The same without compilation."""
        return self.tokens_per_s if self.eager else self.tokens_per_s / (1 + _GAIN[device.kind])


def speed_of(job: JobSpec, device: Device, weights: Weights | None, measured: Measured | None) -> Speed:
    """What an earlier run measured, else a rough rate from the size of the weights."""
    if measured is not None and measured.total_tokens_per_s:
        return Speed(measured.total_tokens_per_s, measured.enforce_eager, "measured by an earlier run")
    units = device.cores if device.kind == "cpu" else job.engine.tensor_parallel_size
    rough = min(_MOST * units, _RATE[device.kind] * units / (weights.total if weights is not None else _USUAL_WEIGHTS))
    return Speed(rough, True, "a rough guess, as no run has measured it yet")


def converted(tokens_per_s: float, device: Device, eager: bool, was_eager: bool) -> float:
    """A measured speed as it would be with or without compilation."""
    gain = 1 + _GAIN[device.kind]
    return tokens_per_s * (1 if eager == was_eager else gain if was_eager else 1 / gain)


def compile_seconds(device: Device) -> float:
    """What compiling adds to the start of an engine."""
    return _COMPILE_S[device.kind]


def compiling(device: Device, speed: Speed, tokens: float) -> tuple[float, float, float]:
    """Seconds that compiling costs, seconds that it saves, and seconds of generating without it."""
    eager_s = tokens / speed.eager_tokens_per_s(device)
    gain = _GAIN[device.kind]
    return _COMPILE_S[device.kind], eager_s * gain / (1 + gain), eager_s
