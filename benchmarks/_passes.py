"""One pass over a folder of predictions in a process of its own: its seconds and the most memory it held, as JSON.

    python -m benchmarks._passes audit FOLDER

Each pass imports what it needs and nothing else, because what is imported counts as memory.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks._memory import peak_resident

#: Numbers per batch that Arrow hands out, and batches that it reads ahead; by default it holds gigabytes of logits.
BATCH, AHEAD = 1 << 20, 4
BINS = 15


def audit(path: Path, threads: int) -> dict[str, Any]:
    """Open the folder and collect what an audit needs."""
    import torch

    from calibrant import Predictions
    from calibrant.auditing.collect import collect

    torch.set_num_threads(threads)
    start = time.perf_counter()
    found = collect(Predictions.open(path))
    seconds = time.perf_counter() - start
    values = found.sketch.compute()
    return {"rows": found.rows, "seconds": seconds, "ece": values["ece"], "aurc": values["aurc"]}


def scan(path: Path, threads: int) -> dict[str, Any]:
    """Let Arrow read the same columns, and do nothing with them."""
    start = time.perf_counter()
    _, batches = read(path)
    rows = sum(batch.num_rows for batch in batches)
    return {"rows": rows, "seconds": time.perf_counter() - start}


def torchmetrics(path: Path, threads: int) -> dict[str, Any]:
    """Let torchmetrics compute its ECE, batch by batch as Arrow reads them."""
    import torch

    from calibrant.base import torchvision_operators

    torchvision_operators.ensure()  # torchmetrics imports torchvision
    from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")  # of arrays that Arrow lets nobody write to
    start = time.perf_counter()
    width, batches = read(path)
    metric = BinaryCalibrationError(BINS) if width == 1 else MulticlassCalibrationError(width, BINS)
    rows = 0
    for batch in batches:
        values, truth = batch.columns
        truth = torch.from_numpy(truth.to_numpy(zero_copy_only=False))
        if width == 1:
            metric.update(torch.from_numpy(values.to_numpy()), truth.int())
        else:
            logits = torch.from_numpy(values.flatten().to_numpy().reshape(-1, width)).float()
            metric.update(logits.softmax(1), truth)
        rows += batch.num_rows
    found = float(metric.compute())
    return {"rows": rows, "seconds": time.perf_counter() - start, "ece": found}


def read(path: Path) -> tuple[int, Iterator[pa.RecordBatch]]:
    """How many numbers a row has, and the batches of what an audit reads: these numbers, then the truth."""
    files = ds.dataset(path, format="parquet")
    first = files.schema.field(0)
    columns = [first.name, "correct" if first.name == "confidence" else "labels"]
    width = first.type.list_size if pa.types.is_fixed_size_list(first.type) else 1
    return width, files.to_batches(columns=columns, batch_size=max(1, BATCH // width), batch_readahead=AHEAD)


PASSES = {"audit": audit, "scan": scan, "torchmetrics": torchmetrics}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._passes")
    parser.add_argument("name", choices=PASSES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    pa.set_cpu_count(args.threads)
    print(json.dumps(PASSES[args.name](args.folder, args.threads) | {"peak": peak_resident()}))


if __name__ == "__main__":
    main()
