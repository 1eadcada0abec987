"""What a job would do, before it does anything: for `batchjobs plan`. Needs no GPU and no vLLM, and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchjobs.errors import SpecError
from batchjobs.forecast.estimate import estimate
from batchjobs.forecast.findings import Findings
from batchjobs.forecast.room import describe_capacity
from batchjobs.forecast.work import Work, work_of
from batchjobs.planning.plan import Dataset, check_overlap, make_plan, read_dataset
from batchjobs.planning.render import NO_LIMIT
from batchjobs.settings.device import Device, find_device, named_device
from batchjobs.settings.devices import placements
from batchjobs.settings.history import lengths_of, newest_record
from batchjobs.settings.model_config import load_config, max_len_of, vocabulary_of
from batchjobs.settings.sample import DEEPEST, Looker, Sample, places
from batchjobs.settings.sizing import decide
from batchjobs.settings.survey import facts_of, generous
from batchjobs.spec import resolve_references
from schemas.description import Description, Problems, Totals
from schemas.figures import Distribution, Estimate
from schemas.history import HistoryRecord
from schemas.job import JobSpec
from schemas.plan import Plan, Shard

_PLACES, _ROWS = 64, 16  # of each: 1,024 rows
_DECODED_BYTES = 2 * 2**30  # of the prompt's columns, on the way to the places


@dataclass(frozen=True)
class _Seen:
    """The job, and the rows that were looked at; None with the reason if no row could be."""

    job: JobSpec  # references resolved
    plan: Plan
    dataset: Dataset
    record: HistoryRecord | None  # of the latest run
    findings: Findings | None
    full: bool
    problem: str = ""


def describe(job: JobSpec, full: bool = False, device: str | None = None, memory: str | None = None) -> Description:
    """What a job would do on this machine, or on the device that is named, or on one of so much memory.

    Looks at about 1,000 rows, or at all of them if `full`. What cannot be known is null, with the reason in `unknown`.
    Raises Refused for a spec that does not fit the dataset.
    """
    hardware = named_device(device, memory)
    resolved = resolve_references(job)
    dataset = read_dataset(resolved)
    check_overlap(resolved, dataset)
    plan = make_plan(job, resolved, dataset)
    return _described(_look(resolved, plan, dataset, full), hardware)


def _look(job: JobSpec, plan: Plan, dataset: Dataset, full: bool) -> _Seen:
    record = newest_record(job)
    id_column = job.input.id_column if full else None
    findings = Findings(plan.rows, generous(lengths_of(record)), id_column)
    paths, shards = [file.path for file in plan.files], range(len(plan.shards))
    also = [id_column] if id_column is not None else []
    try:
        looker = Looker(job, plan, dataset.fs, paths, *_limits(job), also)
    except SpecError as problem:  # a tokenizer that only the hub has; nothing else is wrong with the job
        return _Seen(job, plan, dataset, record, None, full, str(problem))
    where: list[Shard] = (
        list(plan.shards) if full else places(plan, shards, _PLACES, _ROWS, deepest=_deepest(dataset, plan.rows))
    )
    for looked in looker.at(where, findings.add_ids):
        findings.add(looked)
    return _Seen(job, plan, dataset, record, findings, full)


def _deepest(dataset: Dataset, rows: int) -> int:
    """Rows into a row group that the sample may lie: the deeper, the more is decoded on the way."""
    size = dataset.prompt_bytes
    return rows if size <= _DECODED_BYTES else max(DEEPEST, int(_DECODED_BYTES / _PLACES / (size / rows)))


def _limits(job: JobSpec) -> tuple[int, int]:
    """Longest context and size of the vocabulary, as far as they are known."""
    if job.engine.kind == "echo":
        return job.engine.echo.max_model_len, job.engine.echo.vocab_size
    assert job.model is not None
    config, asked = load_config(job), job.model.max_model_len
    longest = asked if isinstance(asked, int) else max_len_of(config)
    return longest or NO_LIMIT, vocabulary_of(config) or NO_LIMIT


def _described(seen: _Seen, hardware: Device | None) -> Description:
    job, plan, findings = seen.job, seen.plan, seen.findings
    facts = facts_of(job, plan, findings.sample if findings is not None else Sample(), plan.rows, hardware)
    sizing, work, shared = decide(facts), _work(seen), findings.shared_prefix() if findings is not None else None
    replicas = min(_replicas(job, hardware), max(1, len(plan.shards)))
    capacity, unknown = describe_capacity(facts)
    if work is not None:
        foreseen = estimate(facts, replace(work, shared_prefix=shared or 0.0), sizing, replicas, seen.record)
    else:
        foreseen = Estimate(basis=f"{_nothing(seen)[:1].upper()}{_nothing(seen)[1:]}.")
    answers = findings.output_tokens(lengths_of(seen.record)) if findings is not None else None
    return Description(
        job=job.name,
        output=job.output.path,
        rows=plan.rows,
        files=len(plan.files),
        shards=len(plan.shards),
        input_columns=[f"{field.name}: {field.type}" for field in plan.input_schema],
        result_columns=plan.result_schema.names,
        prompt_tokens=findings.prompt_tokens() if findings is not None else Distribution(),
        output_tokens=answers,
        shared_prefix=shared,
        problems=findings.problems() if findings is not None else Problems(),
        totals=_totals(work, seen),
        capacity=capacity,
        estimate=foreseen,
        sizing=sizing,
        unknown={**_unknown(seen, work, answers, foreseen), **unknown},
    )


def _work(seen: _Seen) -> Work | None:
    if seen.findings is None:
        return None
    lengths = lengths_of(seen.record)
    return work_of(seen.findings.sample, lengths, seen.plan.rows, seen.dataset.prompt_bytes, seen.record)


def _replicas(job: JobSpec, hardware: Device | None) -> int:
    """Engines side by side: on another device than this machine's as the job says, and one if it does not."""
    if hardware is None or hardware == find_device(job):
        return len(placements(job))
    return job.engine.replicas if isinstance(job.engine.replicas, int) else 1


def _totals(work: Work | None, seen: _Seen) -> Totals:
    if work is None:
        return Totals()
    answers = "as long as those of earlier runs" if work.knows_answers else "from none to all of max_tokens"
    return Totals(
        prompt_tokens=work.prompt_tokens,
        output_tokens=work.output_tokens,
        method=f"{work.method} Answers: {answers}.{_shallow(seen)}",
    )


def _shallow(seen: _Seen) -> str:
    deepest = _deepest(seen.dataset, seen.plan.rows)
    biggest = max((rows for file in seen.plan.files for rows in file.row_groups), default=0)
    if seen.full or biggest <= deepest:
        return ""
    return f" Of each row group only the first {deepest:,} rows were sampled, to read less; `--full` looks at all."


def _nothing(seen: _Seen) -> str:
    return "the tokenizer cannot be loaded" if seen.problem else "no row that was looked at can be generated"


def _unknown(seen: _Seen, work: Work | None, answers: Distribution | None, foreseen: Estimate) -> dict[str, str]:
    found: dict[str, str] = {}
    nothing = _nothing(seen)
    if seen.problem:
        found["problems"] = seen.problem
    if work is None or not work.requests:
        found |= {"prompt_tokens": nothing, "shared_prefix": nothing}
    if work is None:
        found |= {"totals.prompt_tokens": nothing, "totals.output_tokens": nothing}
    if answers is None or not answers.count:
        found["output_tokens"] = "no earlier run of this job has told how long its answers are"
    if foreseen.seconds is None:
        found["estimate.seconds"] = foreseen.basis
    if foreseen.usd is None:
        found["estimate.usd"] = "cost.usd_per_hour is not set" if seen.job.cost is None else "the time is not known"
    return found
