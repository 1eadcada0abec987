"""What is known before anything is tried: of the job, and of each variant of its model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchjobs.accounts.lengths import OutputLengths
from batchjobs.planning.plan import Dataset, make_plan, read_dataset
from batchjobs.rows.sampling import row_field_names
from batchjobs.settings.history import learnt_lengths
from batchjobs.settings.profiles import ProfileStore
from batchjobs.settings.sizing import decide
from batchjobs.settings.survey import survey as survey_rows
from batchjobs.spec import resolve_references
from batchjobs.supervision.preflight import check_engine
from batchjobs.tuning.axes import Room
from batchjobs.tuning.trial import job_of
from schemas.job import JobSpec
from schemas.plan import Plan
from schemas.tuning import Variant


@dataclass(frozen=True)
class Surveyed:
    """A job that may be tried."""

    job: JobSpec  # references resolved
    dataset: Dataset
    plan: Plan
    lengths: OutputLengths  # of answers, as earlier runs of the job saw them


def survey(job: JobSpec) -> Surveyed:
    """Read the dataset's footers and check the spec against it. Raises Refused; writes nothing."""
    resolved = resolve_references(job)
    dataset = read_dataset(resolved)
    return Surveyed(resolved, dataset, make_plan(job, resolved, dataset), learnt_lengths(resolved))


def room_of(surveyed: Surveyed, variant: Variant) -> Room:
    """What is known of a variant. Raises Refused if no engine would take it."""
    job = job_of(surveyed.job, variant)
    check_engine(job, row_field_names(job.sampling, surveyed.dataset.schema))
    if job.engine.kind == "echo":
        return Room()
    # The plan of this variant, whose model names what is remembered of it.
    plan = surveyed.plan if variant.is_own else make_plan(job, job, surveyed.dataset)
    fs, paths, shards = surveyed.dataset.fs, [file.path for file in plan.files], range(len(plan.shards))
    auto = job.model_copy(update={"engine": job.engine.model_copy(update={"max_num_seqs": "auto"})})
    facts = survey_rows(auto, plan, fs, paths, shards, plan.rows, surveyed.lengths)
    derived = decide(facts)["max_num_seqs"].value

    totals = [
        prompt + surveyed.lengths.expected(prompt, max_tokens)
        for place in facts.sample.places.values()
        for prompt, max_tokens in place.requests
    ]
    capacity, mean = facts.capacity, math.ceil(sum(totals) / len(totals)) if totals else None
    return Room(
        derived=int(derived) if derived is not None else None,
        fits=capacity.sequences(mean) if mean is not None else None,
        fits_why=f"{capacity.why}, and the mean of {len(totals):,} sampled rows is {mean:,}" if mean else "",
        longest_prompt=max(facts.sample.prompts, default=None),
        learnt=ProfileStore(job, plan).start_with()[0],
    )
