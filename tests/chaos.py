"""Chaos: kill, stop and freeze the processes of a job at random until it is done, then prove that nothing is lost.

    python -m tests.chaos --kills 200 --seed 1        the echo engine
    python -m tests.chaos --kills 6 --real            the real engine; kills its own processes too

One seed is one schedule of what is done to which process and after how long; when exactly that hits is the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from batchjobs.leftovers import mark_of, marked
from batchjobs.storage.attempts import read_attempts
from batchjobs.storage.store import open_store
from batchjobs.verify import verify_output

ROWS, SHARD_ROWS, SEQS, TOKENS_PER_S = 240, 20, 4, 400
POISON = (17, 121)
REAL_HITS = (
    ("EngineCore", signal.SIGKILL),
    ("Worker", signal.SIGKILL),
    ("replica", signal.SIGKILL),
    ("dispatcher", signal.SIGKILL),
    ("EngineCore", signal.SIGTERM),
    ("EngineCore", signal.SIGSTOP),
)
_FLUSH_S = 3.0  # of the journal


@dataclass
class Report:
    """What was done, and what it cost."""

    hits: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    attempts: int = 0
    rows: int = 0
    redone: int = 0
    redone_allowed: int = 0
    seconds_held: float = 0.0

    def text(self) -> str:
        """For people."""
        hits = ", ".join(f"{count} {name}" for name, count in sorted(self.hits.items()))
        return (
            f"{sum(self.hits.values())} hits ({hits}) on {self.jobs} jobs of {self.rows // max(1, self.jobs)} rows: "
            f"none lost, none double. {self.attempts} attempts, {self.redone} rows done again "
            f"(allowed {self.redone_allowed}), engines held {self.seconds_held:.0f} s"
        )


def echo_spec(folder: Path, replicas: int = 1) -> dict[str, Any]:
    """A job of a few seconds with two poison rows."""
    return {
        "name": "chaos", "input": {"path": str(folder / "data"), "id_column": "id"}, "prompt": {"column": "text"},
        "sampling": {"max_tokens": 20}, "output": {"path": str(folder / "out")},
        "engine": {"kind": "echo", "max_num_seqs": SEQS, "replicas": replicas,
                   "echo": {"tokens_per_s": TOKENS_PER_S, "die_rows": list(POISON)}},
        "run": {"shard_rows": SHARD_ROWS, "max_error_rate": 0.5, "start_seconds": 15, "stall_seconds": 2,
                "drain_seconds": 1, "max_restarts": 1000, "state": str(folder / "state")},
    }  # fmt: skip


def real_spec(folder: Path, model: Path) -> dict[str, Any]:
    """The same on the real engine, without poison: nothing that a row can say kills vLLM on a CPU."""
    spec = echo_spec(folder)
    spec["engine"] = {"max_num_seqs": SEQS, "enforce_eager": True, "kv_cache_memory_bytes": 2**28}
    spec["model"] = {"name": str(model), "max_model_len": 256}
    spec["sampling"] = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    spec["run"] |= {"start_seconds": 300, "stall_seconds": 20}
    return spec


class Chaos:
    """A seeded schedule of hits, over as many jobs as it takes."""

    def __init__(self, seed: int, kills: int, model: Path | None = None) -> None:
        self.report = Report()
        self._random, self._kills, self._model = random.Random(seed), kills, model
        self._wanted = list(REAL_HITS)
        self._random.shuffle(self._wanted)

    def go(self) -> Report:
        """Until the wanted number of hits is reached and every job is done and proven."""
        while sum(self.report.hits.values()) < self._kills:
            with tempfile.TemporaryDirectory() as folder:
                self._one_job(Path(folder))
        return self.report

    def _one_job(self, folder: Path) -> None:
        (folder / "data").mkdir()
        texts = [f"row {n} says {n * n}" for n in range(ROWS)]
        pq.write_table(pa.table({"id": list(range(ROWS)), "text": texts}), folder / "data" / "a.parquet")
        replicas = self._random.choice([1, 2])
        spec = real_spec(folder, self._model) if self._model is not None else echo_spec(folder, replicas)
        (folder / "job.yaml").write_text(yaml.safe_dump(spec))
        deadline = time.monotonic() + 1800
        while self._run_and_hit(folder) != 0:
            assert time.monotonic() < deadline, "the job does not come to its end"
        self._prove(folder)

    def _run_and_hit(self, folder: Path) -> int:
        command = [sys.executable, "-m", "batchjobs.cli", "run", "--no-prefect", "--json", str(folder / "job.yaml")]
        with (folder / "run.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        for pause in self._pauses():
            try:
                return process.wait(pause)
            except subprocess.TimeoutExpired:
                if sum(self.report.hits.values()) < self._kills:
                    self._hit(process, folder)
        raise AssertionError("unreachable")

    def _pauses(self) -> Iterator[float]:
        while True:
            yield self._random.uniform(10, 50) if self._model is not None else self._random.uniform(0.3, 2.5)

    def _hit(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        if self._model is not None:
            self._hit_by_name(process, folder)
        elif self._random.random() < 0.35:
            self._hit_dispatcher(process)
        elif pids := marked(mark_of(str(folder / "out"))):
            victim = self._random.choice(pids)
            number = self._random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
            self._send(victim, number, name_of(victim))

    def _hit_by_name(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """The next of the wanted hits, so that each process of the engine is hit; later, if it is not there yet."""
        name, number = self._wanted[0]
        named = {name_of(pid): pid for pid in marked(mark_of(str(folder / "out")))} | {"dispatcher": process.pid}
        if name in named:
            self._send(named[name], number, name)
            self._wanted = [*self._wanted[1:], self._wanted[0]]

    def _hit_dispatcher(self, process: subprocess.Popen[bytes]) -> None:
        number = self._random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        self._send(process.pid, number, "dispatcher")
        if number == signal.SIGSTOP:
            time.sleep(self._random.uniform(0.1, 1.0))
            process.send_signal(signal.SIGCONT)

    def _send(self, pid: int, number: signal.Signals, name: str) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        self.report.hits[f"{number.name} {name}"] += 1

    def _prove(self, folder: Path) -> None:
        """Each row exactly once, the right answer, the summary's equations, and no more done again than allowed."""
        output = str(folder / "out")
        proof = verify_output(output)
        assert proof.complete, proof.text()
        table = pq.read_table(output)
        assert table["row"].to_pylist() == list(range(ROWS))
        assert table["id"].to_pylist() == list(range(ROWS))
        summary = json.loads((folder / "out/_batchjobs/summary.json").read_text())
        rows = summary["rows"]
        assert rows["total"] == rows["ok"] + rows["error"] == ROWS
        assert rows["total"] == rows["generated"] + rows["deduplicated"] + rows["reused"] + rows["rejected"]
        assert list((folder / "out/_batchjobs/journal").iterdir()) == []
        assert marked(mark_of(output)) == []
        if self._model is None:
            crashed = [row["row"] for row in table.to_pylist() if row["error_code"] == "engine_crash"]
            # A row that was alone at two kills of ours looks just like poison; the poison itself is always found.
            assert set(POISON) <= set(crashed), crashed
            answers = zip(table["text"].to_pylist(), table["output"].to_pylist(), strict=True)
            assert all(a == t[:20] for n, (t, a) in enumerate(answers) if n not in crashed)
        self._account(folder)

    def _account(self, folder: Path) -> None:
        attempts = read_attempts(open_store(str(folder / "out")))
        answered = sum(attempt.rows_done for attempt in attempts)
        self.report.jobs += 1
        self.report.rows += ROWS
        self.report.attempts += len(attempts)
        self.report.seconds_held += sum(attempt.held_s for attempt in attempts)
        self.report.redone += max(0, answered - ROWS)
        per_flush = int(_FLUSH_S * TOKENS_PER_S / 12) if self._model is None else 60
        self.report.redone_allowed += len(attempts) * (2 * SEQS + per_flush)
        assert self.report.redone <= self.report.redone_allowed


def name_of(pid: int) -> str:
    """`replica`, or vLLM's own name of its process."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return "gone"
    for name in ("EngineCore", "Worker", "batchjobs.replica", "resource_tracker"):
        if name in line:
            return name.removeprefix("batchjobs.")
    return "other"


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", action="store_true", help="the real engine with the demo model")
    asked = parser.parse_args()
    model = Path("demo/model").resolve() if asked.real else None
    print(Chaos(asked.seed, asked.kills, model).go().text())


if __name__ == "__main__":
    main()
