"""What makes a job the same job: every setting, input and model file that can change a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from batchjobs.errors import SpecError
from schemas.job import JobSpec
from schemas.plan import InputFile

# Arguments of vllm.LLM that cannot change a result, so they may differ between runs of one output.
HARMLESS_EXTRA = frozenset({
    "download_dir", "kv_offloading_size", "max_cudagraph_capture_size", "max_num_active_seqs",
    "max_parallel_loading_workers", "safetensors_load_strategy", "shutdown_timeout", "use_tqdm_on_load", "watermark",
})  # fmt: skip

_SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_BLOCK = 64 * 1024  # bytes


def identity(job: JobSpec) -> dict[str, Any]:
    """The settings that may not differ between runs of one output, as plain values."""
    full = job.model_dump(mode="json")
    engine = {"kind": job.engine.kind, "extra": {k: v for k, v in job.engine.extra.items() if k not in HARMLESS_EXTRA}}
    if job.engine.kind == "echo":
        engine["echo"] = {"answer": job.engine.echo.answer}
    # Where things lie, and when they arrive, is not what they are: files and model are compared by content, the output
    # is where the plan is.
    for section, names in {
        "input": ("path", "storage_options", "ready"),
        "output": ("path", "storage_options"),
    }.items():
        for name in names:
            full[section].pop(name)
    if full["model"]:
        for name in ("name", "tokenizer"):
            full["model"].pop(name)
        if full["model"]["max_model_len"] == "auto":  # the same answers as with the model's own length
            full["model"]["max_model_len"] = None
    full["prompt"]["chat_template"] = chat_template_text(job)
    return {
        **{section: full[section] for section in ("input", "prompt", "sampling", "model", "output")},
        "engine": engine,
        "run": {"shard_rows": job.run.shard_rows},
    }


def chat_template_text(job: JobSpec) -> str | None:
    """The chat template of the spec, read if it names a file; None means the model's own."""
    template = job.prompt.chat_template
    if template is None or "\n" in template or "{" in template:
        return template
    try:
        return Path(template).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SpecError(f"prompt.chat_template: found {template}, which cannot be read as a file: {error}") from error


def model_fingerprint(job: JobSpec) -> dict[str, str]:
    """What was looked at in the model, each with its hash; for a hub model its name and revision."""
    if job.model is None:
        return {}
    found = _fingerprint_of(job.model.name, job.model.revision, weights=True)
    if job.model.tokenizer is not None:
        other = _fingerprint_of(job.model.tokenizer, job.model.tokenizer_revision, weights=False)
        found |= {f"tokenizer/{name}": value for name, value in other.items()}
    return found


def _fingerprint_of(name: str, revision: str | None, weights: bool) -> dict[str, str]:
    folder = Path(name)
    if not folder.is_dir():
        return {"name": name, "revision": revision or "not pinned"}
    found = {file: _digest([(folder / file).read_bytes()]) for file in _SMALL_FILES if (folder / file).is_file()}
    if weights:
        for file in sorted({f for pattern in _WEIGHTS for f in folder.glob(pattern)}):
            found[file.name] = _digest(_sampled_blocks(file))
    return found


def _sampled_blocks(file: Path) -> Iterable[bytes]:
    """Size and five blocks: a model fine-tuned in place keeps names and sizes, and hashing all of it takes minutes."""
    size = file.stat().st_size
    yield str(size).encode()
    with file.open("rb") as stream:
        for quarter in range(5):
            stream.seek(max(0, (size - _BLOCK) * quarter // 4))
            yield stream.read(_BLOCK)


def _digest(blocks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def fingerprint(identity: dict[str, Any], model: dict[str, str], files: Iterable[InputFile], as_of: datetime) -> str:
    """SHA-256 over settings, model, input files and the frozen instant."""
    inputs = [[file.name, file.size, file.footer_sha256, file.etag, file.partitions] for file in files]
    text = json.dumps([identity, model, inputs, as_of.isoformat()], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def model_id(model: dict[str, str]) -> str:
    """One hash for the model, part of every request's hash."""
    return _digest([json.dumps(model, sort_keys=True).encode()])


def differences(old: Any, new: Any, key: str = "") -> list[str]:
    """Each value that differs, as `key: was … now …`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        return [line for n in names for line in differences(old.get(n), new.get(n), f"{key}.{n}" if key else str(n))]
    return [] if old == new else [f"{key}: was {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."
