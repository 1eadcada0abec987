"""Parts: a shard is committed when its part exists. The commit record is in the part's own footer."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from batchjobs.storage.store import TMP, Store
from schemas.summary import Health

COMMIT_KEY = b"batchjobs.commit"
_PART = re.compile(r"part-(\d{6,})\.parquet")


class Work(BaseModel):
    """Some rows, and the tokens that an engine has computed for them."""

    model_config = ConfigDict(frozen=True)

    rows: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


class Commit(BaseModel):
    """What a part says about itself."""

    model_config = ConfigDict(frozen=True)

    fingerprint: str  # of the job
    shard: int
    revision: int = 0
    attempt: int
    nonce: str  # of the process that wrote it
    rows: int  # output rows
    filtered: int  # rows that the filter removed: rows + filtered = rows planned
    ok: int
    errors: dict[str, int] = {}
    warnings: dict[str, int] = {}
    rejected: int = 0  # rows that never reached the engine
    reused: int = 0  # rows whose result an earlier attempt left, in its journal or in the part that this one replaces
    reused_from: dict[int, Work] = {}  # the reused rows by the attempt that left them
    deduplicated: int = 0  # rows that got the answer of an identical request
    copied: Work = Work()  # these rows, with the tokens that they did not cost
    health: Health = Health()
    tokens: dict[str, int] = {}  # prompt, output, cached; saved: prompt and output of copies, in none of the others
    seconds: float = 0  # from first row fed to last row landed


def part_name(shard: int) -> str:
    """Name of a shard's part."""
    return f"part-{shard:06d}.parquet"


def part_bytes(batches: list[pa.RecordBatch], schema: pa.Schema, commit: Commit) -> pa.Buffer:
    """A whole part in memory: chunks stay chunks (combining them could overflow 2 GiB offsets)."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        if batches:
            writer.write_table(pa.Table.from_batches(batches, schema))
        writer.add_key_value_metadata({COMMIT_KEY.decode(): commit.model_dump_json()})
    return sink.getvalue()


def publish_part(store: Store, batches: list[pa.RecordBatch], schema: pa.Schema, commit: Commit) -> Commit:
    """Commit a shard. Returns the commit that stands: ours, or that of whoever was first.

    A commit with a revision above 0 replaces the part that is there, in one step.
    """
    name = part_name(commit.shard)
    if store.publish(name, memoryview(part_bytes(batches, schema, commit)), replace=commit.revision > 0):
        return commit
    standing = read_commit(store, commit.shard)
    if standing.fingerprint != commit.fingerprint:
        raise OSError(f"{store.url}/{name} appeared while the job ran and belongs to another job")
    return standing


def read_commit(store: Store, shard: int) -> Commit:
    """The commit record of a part; raises ValueError, naming the part, if it has none."""
    name = part_name(shard)
    try:
        with store.open(name) as stream:
            metadata = pq.read_metadata(stream).metadata or {}
        return Commit.model_validate_json(metadata[COMMIT_KEY])
    except (KeyError, pa.ArrowInvalid, ValueError) as error:
        raise ValueError(f"{store.url}/{name} has no readable commit record ({type(error).__name__})") from error


def committed_shards(store: Store) -> set[int]:
    """Numbers of the shards that have a part."""
    return {int(match[1]) for name in store.names() if (match := _PART.fullmatch(name))}


def clean_temporary(store: Store) -> int:
    """Remove what a killed run left in the temporary folder; only the lock's holder may. Returns how many."""
    names = [f"{TMP}/{name}" for name in store.names(TMP)]
    store.delete(names)
    return len(names)


def read_part(store: Store, shard: int, columns: list[str] | None = None, verify: bool = False) -> Any:
    """A part as an Arrow table; `verify` checks the page checksums.

    Raises OSError for a damaged page, FileNotFoundError for a part that is not there.
    """
    data = store.read(part_name(shard))
    if data is None:
        raise FileNotFoundError(2, "no such part", part_name(shard))
    # From memory, not from a Python file: one of Arrow's threads that still holds that file when the interpreter ends
    # is torn down inside of C++, and the process aborts.
    return pq.read_table(pa.BufferReader(data), columns=columns, page_checksum_verification=verify)
