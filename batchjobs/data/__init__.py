"""The dataset: which files, which columns, which rows; read shard by shard."""
