"""The Prefect flows: how a job is scheduled, started and watched. The only package that imports Prefect."""

import os

# Here, because nothing under `flows` is imported before it: Prefect reads these when it is imported itself.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
