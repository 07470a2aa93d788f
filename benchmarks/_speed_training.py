"""The part of docs/speed.md about the training loop: from the numbers of ./dev bench training."""

from __future__ import annotations

from typing import Any

from benchmarks._harness import Ratio
from benchmarks._speed_metrics import machine, table

TRAINING = """\
## Training

Steps per second of `calibrant train`'s loop and of a bare PyTorch loop that does the same work on the same batches;
checkpoints and validation are left out. The target is at most {limit:g} x the bare loop. Medians over {repeats} x
{rounds} interleaved rounds of the ratio within a round, {threads} threads. Run on: {machine}.
Repeat with `./dev bench training`.
"""

READING = """\
Reading ahead: {images} JPEGs of 500 x 375 pixels, crops of 64, a small ResNet. Cores busy is the processor time of all
processes by the time on the clock.
"""


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
