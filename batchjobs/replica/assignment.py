"""What one life of a replica is told before it starts: its dispatcher's first message."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from schemas.job import JobSpec
from schemas.plan import Plan


class Assignment(BaseModel):
    """The job with the settings of this life, and what earlier lives have left."""

    model_config = ConfigDict(frozen=True)

    job: JobSpec  # references resolved
    plan: Plan
    paths: list[str]  # where each planned input file is now
    attempt: int
    cores: tuple[int, ...] = ()  # empty: any
    epoch: int | None = None  # of the lease on the output
    context_chosen: bool = False  # max_model_len is not the user's own: a row that needs more ends this life
    own_max_model_len: int | None = None  # the user's, if there is one; else the model's counts
    lowered: bool = False  # max_model_len was lowered after a death
    groups: list[list[int]] = []  # suspects of earlier deaths: rows that run alone together
    quarantined: dict[int, str] = {}  # row: why
    lengths: dict[str, list[int]] = {}  # of answers, as earlier runs and lives saw them (`OutputLengths.plain`)
    has_worked: bool = False  # some row had an answer before
    retry: list[str] = []  # error codes whose rows run again
    retried_shards: list[int] = []
