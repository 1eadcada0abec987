"""Commands that have a file of their own: arguments and words, no more. `cli.py` has the others."""
