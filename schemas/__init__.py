"""Contracts of batchjobs: the job spec, the result columns, the plan and the summary. Imports nothing of ours."""
