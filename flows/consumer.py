"""An example of what may come after a job: a flow that the event of its end starts, with the folder of results.

Deployed with this trigger, it runs after every job; with a job's name in place of the `*`, after that one:

    triggers:
      - type: event
        expect: [batchjobs.job.completed]
        match: { prefect.resource.id: "batchjobs.job.*" }
        parameters: { output: "{{ event.payload.output }}" }
"""

from __future__ import annotations

import os

import fsspec
import pyarrow.dataset as ds
from prefect import flow
from prefect.logging import get_run_logger


@flow(name="consumer", persist_result=False)
def consumer(output: str) -> None:
    """Count what is in a folder of results. May be started more than once for a folder, as any consumer may.

    Args:
        output: The folder, as the event names it: a reference such as `${LAKE}` is one to this process's environment.
    """
    fs, folder = fsspec.url_to_fs(os.path.expandvars(output))
    rows = ds.dataset(folder, filesystem=fs, format="parquet").count_rows()  # which skips `_batchjobs/`
    get_run_logger().info("%s has %s rows.", output, f"{rows:,}")
