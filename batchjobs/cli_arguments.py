"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="Job file (YAML).", show_default=False)]
Output = Annotated[
    str, typer.Argument(metavar="OUT", help="Output folder of a job, or any fsspec URL.", show_default=False)
]
Force = Annotated[
    bool, typer.Option("--force", help="Run though deadline or budget cannot be met; it stops in time all the same.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]
