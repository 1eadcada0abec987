"""One replica: a process with one engine. `python -m batchjobs.replica` is started by the dispatcher only.

Commands come on standard input, one JSON message a line; its end of file kills the process group, engine included.
Events go to the descriptor named on the command line. Everything printed goes to the log.
"""

from __future__ import annotations

import logging
import os
import signal
import sys

from batchjobs.replica.channel import Sender
from batchjobs.replica.commands import Commands
from batchjobs.replica.wiring import live
from batchjobs.rows.tokenizers_only import spare_torch


def main() -> None:
    """What the dispatcher starts."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    events = Sender(int(sys.argv[1]))
    commands = Commands(events)
    assignment = commands.assignment()
    if assignment.job.engine.kind == "echo":
        spare_torch()
    if assignment.cores:  # before anything is started that would inherit more
        os.sched_setaffinity(0, assignment.cores)
    commands.start()
    live(assignment, commands, events)
    signal.pause()  # all is published: the dispatcher ends this group at once. vLLM's own farewell would take 5 s


if __name__ == "__main__":
    main()
