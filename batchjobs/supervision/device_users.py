"""Programs on a GPU that know nothing of our locks, as far as nvidia-smi shows them."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence

from batchjobs.settings.devices import OneDevice

logger = logging.getLogger("batchjobs")

_QUERY = "gpu_uuid,pid,process_name,used_memory"


def warn_of_others(devices: Sequence[OneDevice]) -> None:
    """Warn of processes that use these devices. To be called with their locks in hand, before an engine starts."""
    names = {device.key: device.text for device in devices if device.key.startswith("GPU-")}
    if not names:
        return
    command = ["nvidia-smi", f"--query-compute-apps={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return
    for line in said.splitlines():
        gpu, *rest = [cell.strip() for cell in line.split(",")]
        if gpu in names and len(rest) == 3:
            pid, program, mebibytes = rest
            logger.warning(
                "%s is also used by process %s (%s, %s MiB), which is no job of batchjobs and not held up by its lock.",
                names[gpu], pid, program, mebibytes,
            )  # fmt: skip
