"""`batchjobs init`: a commented first job file, with the dataset's own columns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import yaml
from jinja2 import Environment

from batchjobs.data.columns import is_text
from batchjobs.data.dataset import find_files, hive_columns, unify_schemas
from batchjobs.data.footers import read_footers
from batchjobs.errors import SpecError

_LIKELY = ("text", "prompt", "content", "body", "question", "document", "input")

TEMPLATE = """\
# A batchjobs job: every row of the dataset gets one answer. `batchjobs schema` prints all keys.
name: {name}

input:
  path: {path}                    # file, folder, glob or list of them; any fsspec URL
{id_line}
  # filter: length(text) > 100  # row-wise SQL predicate; rows that it removes have no answer
  # The columns: {columns}

prompt:
  system: You are a helpful assistant.
  user: {user}   # Jinja over the row's columns
  # Or, instead of system and user, one of:
  # template: "…{{{{ text }}}}…"   # the whole prompt, without a chat template
  # column: {text}                # this column is the whole prompt
  # messages_column: messages    # list<struct<role, content>>
  # token_ids_column: ids        # list<int>

sampling:
  temperature: 0                 # greedy; unset fields are vLLM's defaults
  max_tokens: 128                # required: it bounds what a row can cost

model:
  name: ./path/to/model          # a folder, or a hub name
  # max_model_len: auto          # tokens, fitted to the rows; default: the model's own

engine:
  kind: vllm                     # `echo` answers without a model: a dry run
  # max_num_seqs: 512            # rows that run at the same time; default: what fits the KV cache

output:
  path: results                  # a new or empty folder; any fsspec URL
  # keep_columns: [{id}]         # default: all input columns

run:
  shard_rows: 4096               # rows per shard, the unit of commit
  max_error_rate: 0.02           # above this the job is `partial` (exit code 3)

# cost:
#   usd_per_hour: 2.5            # price of one replica; the summary then says what the job cost
"""


def write_job_file(dataset: str, file: Path) -> None:
    """Write the file; raises SpecError if it exists, InputError for a bad dataset."""
    if file.exists():
        raise SpecError(f"{file} exists already and was not changed; choose another name with --output.")
    fs, found = find_files(dataset, {})
    footers = read_footers(fs, found)
    schema = unify_schemas([(f.file.name, f.schema) for f in footers], hive_columns(found))
    path = dataset if "://" in dataset else str(Path(dataset).absolute())
    file.write_text(job_file_text(path, schema), encoding="utf-8")


def job_file_text(path: str, schema: pa.Schema) -> str:
    """The commented job file for a dataset."""
    texts = [field.name for field in schema if is_text(field.type)] or schema.names
    text = next((name for name in _LIKELY if name in texts), texts[0] if texts else "text")
    identifier = next((name for name in schema.names if name.lower() in ("id", "uuid", "key")), None)
    hint = "  # id_column: id             # `verify` then checks that it is unique"
    name = next((part for part in reversed(path.split("/")) if part and "*" not in part), "job").removesuffix(
        ".parquet"
    )
    plain = text.isidentifier() and text not in Environment().globals and text != "self"
    return TEMPLATE.format(
        name=_quoted(name),
        path=_quoted(path),
        user=_quoted(f"Summarise in one sentence:\n{{{{ {text if plain else f'row[{text!r}]'} }}}}"),
        text=_quoted(text),
        id=_quoted(identifier or "id"),
        id_line=f"  id_column: {_quoted(identifier)}" if identifier else hint,
        columns=", ".join(schema.names).replace("\n", " "),
    )


def _quoted(text: str) -> str:
    """Text as YAML takes it: as it is where that is safe, else in quotes (JSON's are YAML's)."""
    return text if re.fullmatch(r"[A-Za-z][A-Za-z_./-]*\w", text) and yaml.safe_load(text) == text else json.dumps(text)
