"""GPUs are found by the names that people and drivers give them."""

from __future__ import annotations

import pytest

from batchjobs.settings.gpus import find_gpu, names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"), ("h100", "H100"), ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H100 PCIe", "H100-PCIe"), ("NVIDIA A100-SXM4-80GB", "A100-80"), ("NVIDIA A100-PCIE-40GB", "A100-40"),
        ("Tesla T4", "T4"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"), ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"), ("NVIDIA GeForce RTX 4090", "RTX-4090"), ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA H200", "H200"), ("NVIDIA B200", "B200"),
    ],
)  # fmt: skip
def test_a_driver_s_name_is_understood(name: str, found: str) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    assert gpu.name == found


@pytest.mark.parametrize("name", ["NVIDIA A1000", "NVIDIA L40", "Quadro T400", "GeForce RTX 4090 D", "cpu", ""])
def test_one_that_only_looks_alike_is_not_taken_for_another(name: str) -> None:
    assert find_gpu(name) is None


def test_every_name_of_the_table_finds_itself() -> None:
    for name in names():
        gpu = find_gpu(name)
        assert gpu is not None
        assert gpu.name == name
