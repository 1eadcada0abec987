"""One job per device: two flocks for each, in a folder that all users of this machine share.

As with outputs (`storage/lock.py`), the kernel frees a lock when its last holder is gone. The first is the dispatcher's
alone: whoever has it knows that engines still there are orphans of a killed job, and ends them. The second is inherited
by replicas: it is free when the last of them is gone, whoever's they were.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchjobs.accounts.units import clock
from batchjobs.leftovers import remove_users
from batchjobs.settings.devices import OneDevice
from batchjobs.storage.lease import myself
from batchjobs.supervision.device_folder import lock_folder, unusable

Record = dict[str, Any]  # who holds a device


@dataclass
class DeviceLocks:
    """The devices that a run holds, until `release`, or until this process and its replicas are gone."""

    inherited: list[int] = field(default_factory=list)  # descriptors that replicas get
    _own: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    @property
    def names(self) -> str:
        """What replicas carry in their environment, so that they are found when their dispatcher is gone."""
        return ",".join(self._names)

    def add(self, other: DeviceLocks) -> None:
        """Hold these, too."""
        self.inherited += other.inherited
        self._own += other._own
        self._names += other._names

    def release(self) -> None:
        """Let the next job in. May be called again."""
        for descriptor in [*self.inherited, *self._own]:
            os.close(descriptor)
        self.inherited, self._own, self._names = [], [], []


@dataclass(frozen=True)
class Busy:
    """A device that is not free."""

    device: OneDevice
    holder: Record | None  # None if nobody can tell
    is_dead: bool = False  # only what its engine left behind is still there

    @property
    def text(self) -> str:
        """`GPU 0 is held by job nightly of anna (process 4711 on box7, since 02:00:05, output /data/out)`."""
        left = "engines that are left of a killed run: " if self.is_dead else ""
        return f"{self.device.text} is held by {left}{described(self.holder)}"


def record_of(job: str, output: str) -> Record:
    """Who holds a device from now on, for a person who is told that it is busy."""
    return {"job": job, "output": output, "user": _user(), **myself()}


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, users may have only a number
        return str(os.getuid())


def described(holder: Record | None) -> str:
    """A holder in words."""
    try:
        assert holder is not None
        since = clock(datetime.fromisoformat(holder["since"]), datetime.now(UTC))
        return (
            f"job {holder['job']} of {holder['user']} (process {holder['pid']} on {holder['host']}, since {since}, "
            f"output {holder['output']})"
        )
    except (AssertionError, KeyError, TypeError, ValueError):
        return "another job"


def take_groups(groups: Sequence[Sequence[OneDevice]], count: int, me: Record) -> tuple[list[int], DeviceLocks | Busy]:
    """Lock `count` of the groups, each as a whole; which ones, or with fewer free groups none and who is in the way.

    Always in the same order, and without waiting for the next one with some in hand: so nobody waits in a circle.
    Raises Refused if locks cannot be kept on this machine.
    """
    folder, taken, chosen = lock_folder(), DeviceLocks(), list[int]()
    in_the_way: list[Busy] = []
    with _kept_unless_it_fails(taken):
        for number, group in enumerate(groups):
            got = _take_group(folder, group, me)
            if isinstance(got, Busy):
                in_the_way.append(got)
            else:
                taken.add(got)
                chosen.append(number)
            if len(chosen) == count:
                return chosen, taken
            if len(in_the_way) > len(groups) - count:
                break
    taken.release()
    return [], in_the_way[0]


def _take_group(folder: Path, group: Sequence[OneDevice], me: Record) -> DeviceLocks | Busy:
    taken = DeviceLocks()
    with _kept_unless_it_fails(taken):
        for device in sorted(group, key=lambda each: each.key):
            got = _take(folder, device, me)
            if isinstance(got, Busy):
                taken.release()
                return got
            taken.add(got)
    return taken


@contextmanager
def _kept_unless_it_fails(locks: DeviceLocks) -> Iterator[None]:
    try:
        yield
    except BaseException:
        locks.release()
        raise


def _take(folder: Path, device: OneDevice, me: Record) -> DeviceLocks | Busy:
    file = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', device.key)}.lock"
    try:
        own = _locked(file)
        if own is None:
            return Busy(device, _record(file))
        locks = DeviceLocks([], [own], [_name_of(own)])
        with _kept_unless_it_fails(locks):
            return _and_engines(locks, file, device, me)
    except OSError as problem:
        raise unusable(folder, problem) from problem


def _and_engines(locks: DeviceLocks, file: Path, device: OneDevice, me: Record) -> DeviceLocks | Busy:
    """The second lock, with the first in hand."""
    engines = None
    with suppress(TimeoutError):  # killed, and not ended: the device may not be free
        remove_users(locks.names)
        engines = _locked(file.with_suffix(".engines.lock"))
    if engines is None:
        locks.release()
        return Busy(device, _record(file), is_dead=True)
    locks.inherited.append(engines)
    own = locks._own[0]
    os.truncate(own, 0)
    os.pwrite(own, json.dumps(me).encode(), 0)
    return locks


def _locked(file: Path) -> int | None:
    """A descriptor that holds the lock; None if it is taken."""
    while True:
        descriptor = _opened(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(descriptor, file):
                return descriptor
            # A clean-up has removed it meanwhile, and others would lock the new one: so do we.
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def _is_there(descriptor: int, file: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    return False


def _opened(file: Path) -> int:
    """Without O_CREAT where the file is there: of another user's, Linux would refuse it (fs.protected_regular)."""
    while True:
        with suppress(FileNotFoundError):
            return os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=".new-")
        try:
            os.fchmod(descriptor, 0o666)  # whatever the umask: the next holder may be another user
            with suppress(FileExistsError):
                os.link(made, file)
        finally:
            os.close(descriptor)
            os.unlink(made)


def _name_of(descriptor: int) -> str:
    """What names the lock on this machine, also where containers have other folders: the file itself."""
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"


def _record(file: Path) -> Record | None:
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        return found if isinstance(found, dict) else None
    return None
