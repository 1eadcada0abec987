"""batchjobs: offline batch inference over Parquet with vLLM. Plans, runs, checkpoints, accounts; knows no Prefect."""

__version__ = "0.1.0"
