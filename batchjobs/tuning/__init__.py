"""Settings found by trying them on a sample of the job's own rows."""
