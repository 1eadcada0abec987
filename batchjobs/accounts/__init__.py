"""Counting: rows, tokens, seconds, lengths, latencies, money."""
