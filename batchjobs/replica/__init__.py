"""The process with the engine: prepares, orders, feeds, collects. `python -m batchjobs.replica` starts it."""
