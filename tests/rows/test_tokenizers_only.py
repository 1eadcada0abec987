"""A process that runs no model tokenises without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.models import word_model

_CODE = """
import sys
from batchjobs.rows.tokenizers_only import spare_torch, transformers
spare_torch()
tokenizer = transformers().AutoTokenizer.from_pretrained(sys.argv[1])
assert "torch" not in sys.modules, "torch was imported"
assert tokenizer(["text 1"])["input_ids"][0]
import torch
assert torch.__version__
"""


def test_torch_is_not_imported_and_still_can_be(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CODE, str(word_model(tmp_path / "model"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
