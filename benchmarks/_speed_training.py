"""The parts of docs/speed.md about training: from the numbers of ./dev bench training and sweep."""

from __future__ import annotations

from typing import Any

from benchmarks._harness import Ratio
from benchmarks._markdown import table
from benchmarks._speed_metrics import machine

TRAINING = """\
## Training

Steps per second, input included, of `calibrant train`'s loop and of a bare PyTorch loop over tensors that are already
in memory, with the same augmentation written for batches; checkpoints and validation are left out. The data are noise
in the shapes of Fashion-MNIST, CIFAR-10 and 20 Newsgroups, and the embedded scenes. The target is at most {limit:g} x
the time of the bare loop. Medians over {repeats} x {rounds} interleaved rounds of the ratio within a round, {threads}
threads. Run on: {machine}.
Repeat with `./dev bench training`.
"""

READING = """\
Reading ahead: {images} JPEGs of 500 x 375 pixels, crops of 64, a small ResNet. "Cores busy" is the processor time of
all processes, divided by the time on the clock.
"""

SWEEP = """\
## Sweep

Eight runs of `calibrant compare` (two methods, four seeds), from the start of the first to the table: one at a time
with {cores} threads, and as it does by default, {cores} at a time with one thread each. Medians over {rounds} rounds of
both in turn. The last column is the largest distance between two test NLLs of the same run: another number of threads
rounds differently, and training amplifies the difference.
Run on: {machine}.
Repeat with `./dev bench sweep`.
"""


STARTUP = """\
## Startup

Processor time of new processes, report included, divided by that of
`python -c "import numpy, scipy.special, pyarrow.parquet"`: medians over {rounds} interleaved rounds, with quartiles.
Files are logits of 10 classes in .npz, and in .csv where it is said. The target for an audit of 10,000 rows is at
most 3, whatever the file.
`pip install calibrant` takes {total} MB on the disk ({largest}),
without the bytecode of Calibrant itself; the target is at most 460.
Run on: {machine}.
Repeat with `./dev bench startup`.
"""


def startup_part(results: dict[str, Any]) -> str:
    """Everything about what commands cost before their work."""
    rows = []
    for r in results["rows"]:
        low, middle, high = r["ratio"]
        rows.append([r["name"], f"{r['seconds']:.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"])
    sizes = {name: size / 1e6 for name, size in results["sizes"].items()}
    text = STARTUP.format(
        machine=machine(results["environment"]),
        rounds=results["rounds"],
        total=f"{sum(sizes.values()):.0f}",
        largest=", ".join(f"{name} {size:.0f}" for name, size in list(sizes.items())[:3]),
    )
    return "\n".join([text, table(["", "processor seconds", "by the bare imports"], rows), ""])


def sweep_part(results: dict[str, Any]) -> str:
    """Everything about sweeps."""
    rows = [
        [r["title"], *(f"{s:.1f}" for s in r["seconds"]), str(Ratio(**r["ratio"])), f"{r['apart']:.1e}"]
        for r in results["sweeps"]
    ]
    head = ["eight runs", "one at a time, s", "one per core, s", "time by one at a time", "NLL apart"]
    text = SWEEP.format(machine=machine(results["environment"]), cores=results["cores"], rounds=results["rounds"])
    return "\n".join([text, table(head, rows), ""])


def training_part(results: dict[str, Any]) -> str:
    """Everything about the training loop."""
    settings = {name: results[name] for name in ("limit", "repeats", "rounds", "threads")}
    loops = [
        [r["title"], *(f"{rate:.1f}" for rate in r["steps_per_second"].values()), str(Ratio(**r["ratio"]))]
        for r in results["recipes"]
    ]
    read = [[str(r["workers"]), f"{r['images_per_second']:.0f}", f"{r['cores']:.2f}"] for r in results["reading"]]
    parts = [
        TRAINING.format(machine=machine(results["environment"]), **settings),
        table(["recipe", "bare, steps/s", "by recipe, steps/s", "time by bare"], loops),
        READING.format(images=results["images"]),
        table(["workers", "images/s", "cores busy"], read),
    ]
    return "\n".join([*parts, ""])
