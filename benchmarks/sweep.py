"""A sweep that runs one training at a time on all cores, against one per core: ``./dev bench sweep``.

The same eight runs as `calibrant compare` does them, both ways in turn, several times. How far their numbers lie apart
is told as well: another number of threads rounds otherwise, and training amplifies it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import _harness as harness
from benchmarks._harness import say
from calibrant.experiments import Contender, Local, Study, compare
from calibrant.training.recipe import Recipe, check_recipe

FOLDER = Path("build/sweep")
SEEDS = 4
RECIPES: dict[str, dict[str, Any]] = {
    "scenes, small CNN": {
        "data": {"layout": "scenes", "options": {"samples": 1500}},
        "model": {"name": "small_cnn"},
        "training": {"batch_size": 128, "epochs": 4},
    },
    "digits, MLP 2 x 1024": {
        "data": {"layout": "digits"},
        "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [1024, 1024]},
        "training": {"batch_size": 64, "epochs": 12},
    },
}


def sweep(recipe: Recipe, jobs: int, threads: int, seeds: int = SEEDS) -> tuple[float, dict[str, float]]:
    """Seconds from the first run to the table, and the negative log-likelihood of each run."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    study = Study(recipe, {name: Contender(name, {}) for name in ("ce", "ls")}, range(seeds))
    start = time.perf_counter()
    found = compare(study, FOLDER, engine=Local(jobs=jobs, threads=threads))
    seconds = time.perf_counter() - start
    if found.failures:
        raise SystemExit(f"a run failed: {found.failures[0].error}")
    rows = found.results.where(stage="final", set="test", posthoc="none", metric="nll")
    return seconds, dict(zip(rows.column("run"), rows.column("value"), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    cores = os.cpu_count() or 1
    ways = {"one at a time": (1, cores), "one per core": (cores, 1)}
    records, rows = [], []
    for title, plain in RECIPES.items():
        recipe = check_recipe(plain, title)
        sweep(recipe, cores, 1, seeds=1)  # everything is imported once
        timings = {way: harness.Timing(1) for way in ways}
        numbers: dict[str, dict[str, float]] = {}
        for turn in range(args.rounds):
            for way in sorted(ways, reverse=bool(turn % 2)):
                seconds, numbers[way] = sweep(recipe, *ways[way])
                timings[way].seconds.append(seconds)
                say(f"{title}: {way} {seconds:.1f} s")
        one, many = numbers.values()
        apart = max(abs(one[run] - many[run]) for run in one)
        ratio = harness.ratio(timings["one per core"], timings["one at a time"])
        medians = [statistics.median(s for s in timings[way].seconds if s is not None) for way in ways]
        rows.append((title, *(f"{s:.1f}" for s in medians), str(ratio), f"{apart:.1e}"))
        records.append({"title": title, "seconds": medians, "ratio": ratio._asdict(), "apart": apart})
    print()
    head = ("eight runs", *(f"{way}, s" for way in ways), "time by one at a time", "NLL apart")
    harness.print_table(head, rows)
    settings = {"rounds": args.rounds, "cores": cores, "environment": harness.environment()}
    harness.write_json(Path("benchmarks/results/sweep.json"), {"sweeps": records, **settings})


if __name__ == "__main__":
    main()
