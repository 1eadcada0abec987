"""The record of one run in the state store: what the next run of the same job starts from (`history/<job>/…json`)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from schemas.summary import Summary

_Count = Annotated[int, Field(ge=0)]


Setting = str | int | float | bool


class HistoryRecord(BaseModel):
    """How a run ended, what it ran, and what it learnt. What older versions did not record is empty or null."""

    job: str
    ended: datetime
    summary: Summary  # without its timeline
    model: str | None = None  # folder or hub name; its precision and the like are among `settings`
    revision: str | None = None  # of a hub model
    model_id: str | None = None  # hash over the contents of the model, or over name and revision of a hub model
    fingerprint: str | None = None  # of the job: dataset, model and every setting that can change a result
    device: str | None = None
    versions: dict[str, str] = {}  # batchjobs, pyarrow, ..., engine
    # Of the job and in force in its last attempt, by key of the job file: `engine.max_num_seqs` -> 64. Unset ones are
    # left out, and so is what may be secret. What has several values is JSON.
    settings: dict[str, Setting] = {}
    # Shortest prompt of a bucket (a power of two, in tokens) -> rows, and their output tokens.
    lengths: dict[Annotated[str, Field(pattern=r"^\d+$")], Annotated[list[_Count], Field(min_length=2, max_length=2)]]
