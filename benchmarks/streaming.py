"""The audit's pass over Parquet folders larger than memory should have to be: rows per second, and the peak of memory.

    ./dev bench streaming                1e8 pairs of confidence and correctness, 2e6 x 1000 float16 logits (about 4 GB)
    ./dev bench streaming --rows 1e6     the same hundredfold smaller
    ./dev bench streaming --remove       remove what was written, and stop

The folders are written once, to build/streaming, and kept. Each pass is a process of its own that opens the folder and
goes through it: "audit" is Predictions.open and the audit's collect, "scan" is Arrow reading the same columns and doing
nothing with them, "torchmetrics" its ECE of the batches that Arrow reads. They take turns and medians count; a first
scan brings the files into the page cache, as far as they fit. Time is from opening to the end, without imports; memory
is the most the whole process held.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks import _harness as harness
from benchmarks._harness import say
from benchmarks._metric_rows import BUSY, SETTINGS, draw_logits, draw_pairs
from benchmarks._passes import PASSES

FOLDER = Path("build/streaming")
ROWS, CLASSES = 100_000_000, 1000
#: So many confidences come on one row of logits.
ROWS_PER_LOGITS = 50
#: The most memory that a pass of the audit may hold.
MEMORY_LIMIT = 10**9
#: Numbers per row group.
GROUP = 1 << 22
SHARDS = 10


class Folder(NamedTuple):
    """A folder of shards: logits if it has classes, else confidence and correctness."""

    rows: int
    classes: int

    @property
    def path(self) -> Path:
        return FOLDER / (f"logits-{self.rows}x{self.classes}" if self.classes else f"confidence-{self.rows}")

    @property
    def title(self) -> str:
        return f"{self.rows:,} x {self.classes} logits" if self.classes else f"{self.rows:,} confidences"

    @property
    def expected_bytes(self) -> int:
        """Random numbers do not compress: float16 logits and small labels, or float32 confidences and bits."""
        return self.rows * (2 * self.classes + 2 if self.classes else 5)

    def schema(self) -> Any:
        if not self.classes:
            return pa.schema([("confidence", pa.float32()), ("correct", pa.bool_())])
        item = pa.field("item", pa.float16(), nullable=False)
        return pa.schema([("logits", pa.list_(item, self.classes)), ("labels", pa.int64())])

    def batches(self, shard: int, rows: int) -> Iterator[Any]:
        """One shard's row groups, drawn from a seed of its own."""
        random = torch.Generator().manual_seed(shard)
        step = max(1, GROUP // max(1, self.classes))
        for start in range(0, rows, step):
            size = min(step, rows - start)
            if self.classes:
                logits, labels = draw_logits(size, self.classes, SETTINGS[0], random)
                flat = pa.array(logits.half().numpy().reshape(-1))
                lists = pa.FixedSizeListArray.from_arrays(flat, type=self.schema().field("logits").type)
                columns = [lists, pa.array(labels.numpy())]
            else:
                confidence, correct = draw_pairs(size, SETTINGS[0], random)
                columns = [pa.array(confidence.numpy()), pa.array(correct.numpy())]
            yield pa.record_batch(columns, schema=self.schema())

    def write(self) -> None:
        """Write the shards unless they are there, aside first."""
        if self.path.exists():
            return
        aside = self.path.with_name(f".{self.path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for shard in range(SHARDS):
            say(f"{self.title}: writing shard {shard + 1} of {SHARDS}", passing=True)
            rows = self.rows // SHARDS + (shard < self.rows % SHARDS)
            with pq.ParquetWriter(aside / f"shard-{shard}.parquet", self.schema(), use_dictionary=["labels"]) as writer:
                for batch in self.batches(shard, rows):
                    writer.write_batch(batch, row_group_size=len(batch))
        aside.rename(self.path)

    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.path.iterdir())


def check_disk(folders: list[Folder]) -> None:
    """Say what will be written and what is free, and stop where it does not fit."""
    missing = [folder for folder in folders if not folder.path.exists()]
    if not missing:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    needed, free = sum(folder.expected_bytes for folder in missing), shutil.disk_usage(FOLDER).free
    print(f"to be written: about {needed / 1e9:.2g} GB, to {FOLDER}; free on the disk: {free / 1e9:.3g} GB", flush=True)
    if 1.2 * needed > free:
        raise SystemExit("not enough room on the disk: ask for fewer --rows")


def run_pass(name: str, folder: Folder, threads: int) -> dict[str, Any]:
    """A pass in a new process: its seconds, its peak of memory, and what it found."""
    command = [sys.executable, "-m", "benchmarks._passes", name, str(folder.path), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the {name} of {folder.path} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["rows"] != folder.rows:
        raise SystemExit(f"{folder.path} should have {folder.rows} rows, and the {name} found {found['rows']}")
    return found


def measure(folder: Folder, repeats: int, threads: int) -> dict[str, Any]:
    """The passes over a folder, in turn."""
    run_pass("scan", folder, threads)
    neighbours, start, before = harness.Neighbours(), time.perf_counter(), os.times()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in PASSES}
    for turn in range(repeats):
        for name in PASSES:
            say(f"{folder.title}: {name} {turn + 1} of {repeats}", passing=True)
            runs[name].append(run_pass(name, folder, threads))
    others, after = neighbours.cores(), os.times()
    # The passes' own work is not this process's, and would pass for a neighbour's.
    spent = sum(getattr(after, part) - getattr(before, part) for part in ("children_user", "children_system"))
    others = None if others is None else max(0.0, round(others - spent / (time.perf_counter() - start), 2))
    record: dict[str, Any] = {"title": folder.title, "rows": folder.rows, "classes": folder.classes, "runs": runs}
    record |= {"bytes": folder.bytes(), "cores_of_others": others}
    for name, found in runs.items():
        seconds = statistics.median(run["seconds"] for run in found)
        peak = max(run["peak"] for run in found)
        record[name] = {"seconds": seconds, "rows_per_second": folder.rows / seconds, "peak": peak}
    ratios = [audit["seconds"] / scan["seconds"] for audit, scan in zip(runs["audit"], runs["scan"], strict=True)]
    peak = record["audit"]["peak"]
    verdict = "ok" if peak < MEMORY_LIMIT else f"over: memory {peak / 1e6:.0f} MB > {MEMORY_LIMIT / 1e6:.0f} MB"
    return record | {"by_scan": statistics.median(ratios), "verdict": verdict}


def show(record: dict[str, Any]) -> None:
    """The table of a folder."""
    print(f"\n{record['title']}, {record['bytes'] / 1e9:.3g} GB\n")
    if (others := record["cores_of_others"]) is not None and others > BUSY:
        print(f"OTHERS WERE BUSY ON {others:g} CORES MEANWHILE: the times below are not to be trusted\n")
    lines = []
    for name in PASSES:
        found = record[name]
        speed = [f"{found['rows_per_second']:.3g}", f"{record['bytes'] / found['seconds'] / 1e9:.2f}"]
        verdict = f"{record['by_scan']:.3g} times the scan; {record['verdict']}" if name == "audit" else "-"
        lines.append([name, f"{found['seconds']:.3g}", *speed, f"{found['peak'] / 1e6:.0f}", verdict])
    harness.print_table(("", "s", "rows/s", "GB/s", "peak MB", ""), lines)


def rows_from(text: str) -> int:
    """Read a number of rows, 1e6 too."""
    rows = int(float(text))
    if rows < ROWS_PER_LOGITS * SHARDS:
        raise argparse.ArgumentTypeError(f"expected at least {ROWS_PER_LOGITS * SHARDS} rows, got {text}")
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench streaming", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    share = f"logits have one row for {ROWS_PER_LOGITS} of them"
    add("--rows", type=rows_from, default=ROWS, help=f"rows of confidences; {share} (default: %(default)s)")
    add("--repeats", type=int, default=3, help="default: %(default)s")
    add("--threads", type=int, default=2, help="default: %(default)s")
    add("--remove", action="store_true", help=f"remove {FOLDER} and stop")
    add("--json", default="benchmarks/results/streaming.json", metavar="PATH", help="default: %(default)s")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.remove:
        shutil.rmtree(FOLDER, ignore_errors=True)
        return
    torch.set_num_threads(args.threads)
    machine = harness.environment()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    folders = [Folder(args.rows, 0), Folder(args.rows // ROWS_PER_LOGITS, CLASSES)]
    check_disk(folders)
    results: dict[str, Any] = {"environment": machine, "settings": vars(args), "folders": []}
    results["targets"] = {"peak of the audit": MEMORY_LIMIT}
    for folder in folders:
        folder.write()
        results["folders"].append(measure(folder, args.repeats, args.threads))
        show(results["folders"][-1])
        harness.write_json(args.json, results)
    print(f"\n{FOLDER} holds {sum(folder.bytes() for folder in folders) / 1e9:.3g} GB and is kept; --remove removes it")
    say(f"raw numbers in {args.json}")


if __name__ == "__main__":
    main()
