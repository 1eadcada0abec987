"""The record of one run in the state store: what the next run of the same job starts from (`history/<job>/…json`)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from schemas.summary import Summary

_Count = Annotated[int, Field(ge=0)]


class HistoryRecord(BaseModel):
    """How a run ended, and what it learnt."""

    job: str
    ended: datetime
    summary: Summary
    # Shortest prompt of a bucket (a power of two, in tokens) -> rows, and their output tokens.
    lengths: dict[Annotated[str, Field(pattern=r"^\d+$")], Annotated[list[_Count], Field(min_length=2, max_length=2)]]
