"""`python -m bench`: throughput against one `LLM.generate`, a million rows through echo, and the quick commands."""

from __future__ import annotations

import argparse

from bench import commands, scale, throughput


def main() -> None:
    """Run the benchmarks that are asked for; default all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("which", nargs="*", help="throughput, scale, commands; default all")
    parser.add_argument("--pairs", type=int, default=3, help="alternating runs of the throughput benchmark")
    parser.add_argument("--rows", type=int, default=512, help="rows of the throughput benchmark, in 8 shards")
    parser.add_argument("--scale-rows", type=int, default=1_000_000, help="rows of the scale benchmark")
    asked = parser.parse_args()
    which = asked.which or ["commands", "scale", "throughput"]
    if "commands" in which:
        commands.measure()
    if "scale" in which:
        scale.measure(asked.scale_rows)
    if "throughput" in which:
        throughput.measure(asked.rows, asked.pairs)


if __name__ == "__main__":
    main()
