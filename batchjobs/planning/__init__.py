"""The plan of a job: its shards, frozen, and the rows of it outside of a run."""
