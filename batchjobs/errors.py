"""Everything that batchjobs raises on purpose.

BatchjobsError                exit code 1, state `failed`
├── Refused                   exit code 2, state `refused`: nothing was changed
│   ├── SpecError             a key of the job spec: unknown, impossible, or of the wrong type
│   ├── InputError            the dataset: missing, unreadable, or files that do not fit together
│   └── OutputError           the output folder: not ours, of another job, or in use
├── InputChanged              a planned input file is not what it was
└── EngineFailed              the engine did not start, died, or rejects everything
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


class OutputError(Refused):
    """The output folder: not ours, of another job, or in use."""


class InputChanged(BatchjobsError):
    """An input file differs from what was planned."""


class EngineFailed(BatchjobsError):
    """The engine did not start, died, or failed row after row."""
