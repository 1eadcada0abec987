"""The output folder: what is published, committed, journaled and locked, and how it is read again."""
