"""Benchmarks: `make bench`. Each compares what was measured in one run, because machines are shared and noisy."""
