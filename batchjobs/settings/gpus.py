"""What common GPUs hold and can do: bytes of memory, bytes per second, floating point operations per second.

Memory is what the driver shows (`nvidia-smi`), which is less than the name says where error correction takes a
sixteenth. Bandwidth and dense tensor operations, without sparsity, are from the vendors' datasheets and white papers:
NVIDIA's datasheets of T4, A10, A100, L4, L40S, H100, H200 and HGX B200, its white papers "Ada GPU Architecture" and
"RTX Blackwell GPU Architecture" (with accumulation in 32 bits) for GeForce, and AMD's datasheets of the Instinct MI300X
and MI325X.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MIB = 2**20


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU."""

    name: str
    memory_bytes: int
    bytes_per_s: float
    flops: float  # with 16-bit values
    fp8_flops: float | None = None

    def flops_for(self, eight_bits: bool) -> float:
        """Operations per second at best."""
        return self.fp8_flops if eight_bits and self.fp8_flops is not None else self.flops


_BRANDS = re.compile(r"nvidia|geforce|tesla|rtx|amd|instinct|[\s_-]+")
# The more particular pattern first; a name is matched from its start, without brands, blanks and hyphens.
_GPUS: tuple[tuple[str, Gpu], ...] = (
    (r"t4(?!\d)", Gpu("T4", 15_360 * _MIB, 320e9, 65e12)),
    (r"a10g", Gpu("A10G", 23_028 * _MIB, 600e9, 70e12)),
    (r"a10(?!\d)", Gpu("A10", 23_028 * _MIB, 600e9, 125e12)),
    (r"a100(?!0).*80", Gpu("A100-80", 81_920 * _MIB, 2039e9, 312e12)),
    (r"a100(?!0)", Gpu("A100-40", 40_960 * _MIB, 1555e9, 312e12)),
    (r"l40s", Gpu("L40S", 46_068 * _MIB, 864e9, 362e12, 733e12)),
    (r"l4(?!\d)", Gpu("L4", 23_034 * _MIB, 300e9, 121e12, 242e12)),
    (r"h100.*nvl", Gpu("H100-NVL", 95_830 * _MIB, 3.9e12, 835e12, 1671e12)),
    (r"h100.*pcie", Gpu("H100-PCIe", 81_559 * _MIB, 2e12, 756e12, 1513e12)),
    (r"h100", Gpu("H100", 81_559 * _MIB, 3.35e12, 989e12, 1979e12)),
    (r"h200", Gpu("H200", 143_771 * _MIB, 4.8e12, 989e12, 1979e12)),
    (r"b200", Gpu("B200", 183_359 * _MIB, 8e12, 2250e12, 4500e12)),
    (r"4090(?!d)", Gpu("RTX-4090", 24_564 * _MIB, 1008e9, 165.2e12, 330.3e12)),
    (r"5090(?!d)", Gpu("RTX-5090", 32_607 * _MIB, 1792e9, 209.5e12, 419e12)),
    (r"mi300x", Gpu("MI300X", 192 * 2**30, 5.3e12, 1307.4e12, 2614.9e12)),
    (r"mi325x", Gpu("MI325X", 256 * 2**30, 6e12, 1307.4e12, 2614.9e12)),
)


def find_gpu(name: str) -> Gpu | None:
    """The GPU of this name, as people write it or as its driver names it; None if it is not in the table."""
    plain = _BRANDS.sub("", name.lower())
    return next((gpu for pattern, gpu in _GPUS if re.match(pattern, plain)), None)


def names() -> list[str]:
    """Of all GPUs in the table."""
    return [gpu.name for _, gpu in _GPUS]
