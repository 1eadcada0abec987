"""Where the locks of devices are: one folder for all users of this machine."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from batchjobs.errors import Refused

_FOLDER = "BATCHJOBS_LOCKS"
_RUN_LOCK = Path("/run/lock")
_OTHERWISE = Path("/tmp/batchjobs-devices")  # not of TMPDIR, which is not the same for everybody
_FOR_ALL = 0o1777  # everybody makes files there, and nobody removes another's


def lock_folder() -> Path:
    """The same for all users of this machine, whoever comes first; made if it is not there. Raises Refused."""
    if named := os.environ.get(_FOLDER):
        folder = Path(named)
    elif (_RUN_LOCK / "batchjobs").is_dir() or _is_for_all(_RUN_LOCK):
        folder = _RUN_LOCK / "batchjobs"
    else:
        folder = _OTHERWISE
    try:
        if not folder.is_dir():
            _make(folder)
    except OSError as problem:
        raise unusable(folder, problem) from problem
    return folder


def _is_for_all(folder: Path) -> bool:
    with suppress(OSError):
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    return False


def _make(folder: Path) -> None:
    """For all users from its first moment on: made under another name, whatever the umask, then renamed."""
    made = tempfile.mkdtemp(dir=folder.parent, prefix=".batchjobs-")
    os.chmod(made, _FOR_ALL)
    try:
        os.rename(made, folder)
    except OSError:
        os.rmdir(made)
        if not folder.is_dir():  # nobody else was quicker
            raise


def unusable(folder: Path, problem: OSError) -> Refused:
    """What to tell people when no lock can be kept there."""
    return Refused(
        f"The lock of a device cannot be kept in {folder}: {problem.strerror or problem}. Nothing was changed. Set "
        f"{_FOLDER} to a folder of this machine that all its users may write to, or BATCHJOBS_DEVICES to nothing if "
        "no other job uses the device."
    )
