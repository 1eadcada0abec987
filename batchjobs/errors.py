"""Everything that batchjobs raises on purpose.

BatchjobsError                exit code 1, state `failed`
├── Refused                   exit code 2, state `refused`: nothing was changed
│   ├── SpecError             a key of the job spec: unknown, impossible, or of the wrong type
│   ├── InputError            the dataset: unreadable, or files that do not fit together
│   │   └── InputMissing      it is not there, or not complete yet
│   ├── OutputError           the output folder: not ours, of another job, or in use
│   └── DeviceBusy            another job holds the GPU and did not leave in time
├── StoppedWaiting            exit code 3, state `partial`: stopped on purpose before it began
├── InputChanged              a planned input file is not what it was
├── StorageFailed             the output's storage: full, not permitted, not there (also an OSError)
├── LeaseLost                 another run took the output over
├── EngineDied                the engine did not start or died: another life may go on
├── ContextTooShort           the chosen max_model_len: a life with a longer one goes on
└── EngineFailed              the engine fails row after row: no life will do better
"""

from __future__ import annotations


class BatchjobsError(Exception):
    """The job could not go on. What is committed stays; the message says how to go on."""

    exit_code = 1


class Refused(BatchjobsError):
    """The job was not begun and nothing was changed."""

    exit_code = 2


class SpecError(Refused):
    """The job spec: names the key, what was found and what is allowed."""


class InputError(Refused):
    """The dataset: names the file and, where there is one, the field."""


class InputMissing(InputError):
    """The dataset is not there, or not complete yet: it may arrive."""


class OutputError(Refused):
    """The output folder: not ours, of another job, or in use."""


class DeviceBusy(Refused):
    """Another job holds the device for longer than this one was to wait; says who."""


class StoppedWaiting(BatchjobsError):
    """Stopped on purpose while it waited for its input; nothing was changed."""

    exit_code = 3


class InputChanged(BatchjobsError):
    """An input file differs from what was planned."""


class StorageFailed(BatchjobsError, OSError):
    """The output's storage did not do what was asked; says what and where. What is committed stays."""


class LeaseLost(BatchjobsError):
    """Another run took the output over, because this one gave no sign of life for too long."""


class EngineDied(BatchjobsError):
    """The engine did not start, or died; what it raised is the cause."""

    def __init__(self, death: BaseException) -> None:
        super().__init__(f"{type(death).__name__}: {death}")


class ContextTooShort(BatchjobsError):
    """A row needs more context than `max_model_len: auto` had chosen; another life gets more."""

    def __init__(self, row: int, needed: int, chosen: int) -> None:
        super().__init__(
            f"row {row} may need {needed} tokens of context, more than the {chosen} that max_model_len: auto had chosen"
        )


class EngineFailed(BatchjobsError):
    """The engine fails row after row, so no restart will help."""
