"""The transformers library, for tokenisers and configurations. With torch at hand it imports that too, which costs a
process that runs no model some 3 seconds and 400 MB.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_spare = False


def spare_torch() -> None:
    """This process never runs a model: transformers may do without torch in it, from now on and for good."""
    global _spare
    _spare = True


def transformers() -> Any:
    """The library."""
    if _spare and not {"torch", "transformers"} & sys.modules.keys():
        _import_without_torch()
    import transformers

    return transformers


def _import_without_torch() -> None:
    """Whether there is a torch, transformers asks only once."""
    advice = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(advice)
    os.environ[advice] = "1"  # else it says on standard error that there is no torch
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's own way to say that a module is not there
    try:
        import transformers  # noqa: F401
    finally:
        del sys.modules["torch"]
        if before is None:
            del os.environ[advice]
        else:
            os.environ[advice] = before
