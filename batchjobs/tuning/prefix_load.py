"""The load of `bench prefix-cache`: a job's own requests as token ids, and copies that have no beginning in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchjobs.engines.base import Request
from batchjobs.errors import InputError, SpecError
from batchjobs.planning.plan import make_plan, read_dataset
from batchjobs.planning.render import rendered
from schemas.job import InputSpec, JobSpec
from schemas.request import PromptSpec

CALLS = ("warm-up", "cold", "hot", "independent")  # one after the other, each of them a shard

_IDS = "ids"
_PLACE = 6  # of the two tokens that are replaced: in the first block, whose size is 16 or more, behind a chat's opening

Prompt = list[int]


def load_job(job: JobSpec, file: Path) -> tuple[JobSpec, int]:
    """The job that runs the rows of `job`, a job over a sample, in the order of `CALLS`; and requests of each call.

    Writes its dataset to `file`. Rows that give no request are left out. Raises InputError if none gives one.
    """
    dataset = read_dataset(job)
    made = rendered(job, make_plan(job, job, dataset), dataset, dataset.shards)
    requests = [request for request in made if isinstance(request, Request)]
    if not requests:
        raise InputError("No row of the sample gives a request; `batchjobs try` shows why.")
    prompts = [request.token_ids for request in requests]
    different = independent(prompts)
    calls = [list(itertools.islice(different, len(prompts))), prompts, prompts, list(different)]
    columns = {_IDS: pa.array(itertools.chain.from_iterable(calls), pa.list_(pa.int32()))}
    own = job.sampling.per_row_column
    if own is not None:
        values = pq.read_table(dataset.files[0].path, columns=[own])[own].take([request.row for request in requests])
        columns[own] = pa.chunked_array(values.chunks * len(calls), values.type)
    pq.write_table(pa.table(columns), file)
    return _one_call_after_the_other(job, file, len(requests)), len(requests)


def _one_call_after_the_other(job: JobSpec, file: Path, rows: int) -> JobSpec:
    as_it_comes = {"feed": "generate", "order": "input", "deduplicate": "never", "shard_rows": rows}
    return job.model_copy(
        update={
            "input": InputSpec(path=str(file)),
            "prompt": PromptSpec(token_ids_column=_IDS),
            "run": job.run.model_copy(update=as_it_comes),
        }
    )


def independent(prompts: Sequence[Prompt]) -> Iterator[Prompt]:
    """The prompts twice, of the same lengths, each begun in a way that no other is and none of the originals.

    Two tokens of each are replaced by ones that the prompts have elsewhere. Raises SpecError if there are too few.
    """
    used = {tuple(prompt[_place(prompt) :][:2]) for prompt in prompts}
    tokens = sorted({token for prompt in prompts for token in prompt})
    fresh = (pair for pair in itertools.product(tokens, tokens) if pair not in used)
    for prompt in [*prompts, *prompts]:
        pair = next(fresh, None)
        if pair is None:
            raise SpecError(
                f"--rows: {len(prompts):,} prompts of {len(tokens):,} different tokens cannot all begin differently; "
                "allowed: fewer rows"
            )
        place = _place(prompt)
        yield [*prompt[:place], *pair[: len(prompt) - place], *prompt[place + 2 :]]


def _place(prompt: Prompt) -> int:
    return max(0, min(_PLACE, len(prompt) - 2))
