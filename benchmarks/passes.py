"""Passes over shards on a cluster of three nodes: rows per second and core, and the memory of the command itself.

    ./dev bench passes               1e7 rows of 10 float16 logits in 30 Parquet files (some 250 MB)
    ./dev bench passes --rows 1e6    a tenth of it

The files are written once, to build/passes, and kept. The nodes are on this machine, one core each, so three share what
cores there are. Each command runs as a user runs it, on all files and on one, which tells what starting costs: the rate
is of the rows between the two, by the seconds between the two. The last columns are of the command's own process; its
tasks are processes of the nodes. They are the rows that it takes in per second of its own, however many machines there
are, and the most memory it held.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import say
from calibrant import Policy, Predictions

FOLDER = Path("build/passes")
NODES, SHARDS, CLASSES = 3, 30, 10
STORE = 150 * 2**20  # bytes of each node's object store

COMMANDS = {
    "audit": "audit {files} -o none --replicates 100",
    "check": "check {files} --require ece<=0.9 --policy {policy} --require policy.risk<=0.9",
    "fit": "fit {files} --target-risk 20% -o {folder}/fitted.json",
    "apply": "apply {policy} {files} -o {folder}/decisions.parquet",
    "monitor": "monitor {policy} {files} --state {folder}/watch.json --alarm-on promise",
}


def main() -> None:
    """Write the shards, start the nodes, and run every command on all shards and on one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--only", default=",".join(COMMANDS), help="commands, separated by commas")
    parser.add_argument("--remove", action="store_true", help="remove what was written, and stop")
    arguments = parser.parse_args()
    if arguments.remove:
        shutil.rmtree(FOLDER, ignore_errors=True)
        return
    size = int(arguments.rows) // SHARDS
    folder = write_shards(size)
    cores = min(NODES, os.cpu_count() or 1)
    say(f"{SHARDS * size:,} rows x {CLASSES} float16 logits in {SHARDS} files; {NODES} nodes on {cores} cores")
    say(f"{'':9}{'one file':>10}{'all files':>11}{'rows/s/core':>13}{'command, rows/s':>17}{'memory':>10}")
    with tempfile.TemporaryDirectory() as scratch, cluster() as address:
        policy = Path(scratch) / "policy.json"
        Policy.fit(Predictions.open(folder / "part00.parquet").samples(slice(0, 20_000)), 0.2).save(policy)
        for name in arguments.only.split(","):
            runs = []
            for files in ("part00.parquet", "*.parquet"):
                words = COMMANDS[name].format(files=folder / files, policy=policy, folder=scratch).split()
                for left in ("watch.json", "decisions.parquet"):
                    Path(scratch, left).unlink(missing_ok=True)
                runs.append(run([*words, "--engine", "ray", "--address", address, "-q"]))
            (one, own, _), (every, own_every, memory) = runs
            rows = (SHARDS - 1) * size
            rates = rows / max(1e-9, every - one) / cores, rows / max(1e-9, own_every - own)
            say(f"{name:9}{one:8.1f} s{every:9.1f} s{rates[0]:13,.0f}{rates[1]:17,.0f}{memory / 1e6:7.0f} MB")


def write_shards(size: int) -> Path:
    """The folder with the shards, written if it is not there."""
    folder = FOLDER / f"{SHARDS}x{size}"
    if not folder.exists():
        aside = folder.with_suffix(".part")
        aside.mkdir(parents=True, exist_ok=True)
        for shard in range(SHARDS):
            random = np.random.default_rng(shard)
            logits = 4 * random.standard_normal((size, CLASSES), dtype=np.float32)
            labels = (logits + random.gumbel(size=logits.shape)).argmax(1)
            Predictions.from_logits(logits.astype(np.float16), labels).save(aside / f"part{shard:02}.parquet")
        aside.rename(folder)
    return folder


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a cluster of `NODES` nodes of one core each, all on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=node)
    try:
        for _ in range(NODES - 1):
            nodes.add_node(**node)
        yield nodes.address
    finally:
        nodes.shutdown()


def run(words: list[str]) -> tuple[float, float, int]:
    """The seconds that a command takes, those of processors in its own process, and the most bytes that this held."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    problems = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):  # a gate may fail, a watch may raise an alarm
        raise SystemExit(f"{' '.join(words)}: {problems}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
