"""What the training loop costs: steps per second by recipe against a bare PyTorch loop that does the same work.

    ./dev bench training                    a small CNN on scenes and an MLP on digits; photographs read by workers
    ./dev bench training --rounds 40 --threads 1

Both loops take the same batches from the same pipeline, normalise them, and step the same model by the same loss and
optimiser. "bare" is the loop one writes; "recipe" is the one of `calibrant.training`, with its schedule, seeds per
step, checks, the loss's terms every 25 steps and everything else but checkpoints and validation. Ratios are medians
over interleaved rounds; where in memory a model lies changes its speed by a few per cent, so both are made anew
several times, each of them first in turn.

The second table trains on JPEGs of 500 x 375 pixels (crops of 64, a small ResNet) with 0, 1 and 2 reading processes:
images per second, and how many cores are busy, from the processor time of all processes by the time on the clock.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import _harness as harness
from benchmarks._harness import Step, say
from benchmarks._metric_rows import BUSY
from benchmarks.data import photographs
from calibrant.data import normalised
from calibrant.models import build
from calibrant.training import preparing, processes, stepping
from calibrant.training.recipe import Recipe, check
from calibrant.training.sets import Sets, load_sets

#: The most that the loop may take of the bare one.
LIMIT = 1.03
BATCHES = 15

RECIPES: dict[str, dict[str, Any]] = {
    "scenes, small CNN, batches of 128": {
        "data": {
            "layout": "scenes",
            "options": {"samples": 2000},
            "train_steps": [{"step": "random_resized_crop", "size": 32}, {"step": "flip"}],
        },
        "model": {"name": "small_cnn"},
        "loss": {"name": "acls"},
        "optimiser": {"rate": 0.01},
        "training": {"epochs": 1, "batch_size": 128},
    },
    "digits, MLP 2 x 1024, batches of 64": {
        "data": {"layout": "digits"},
        "model": {"name": "mlp", "input_size": [3, 8, 8]},
        "loss": {"name": "ls"},
        "optimiser": {"rate": 0.01},
        "training": {"epochs": 1, "batch_size": 64},
    },
}


#: What reads enough to be worth reading ahead.
PHOTOGRAPHS: dict[str, Any] = {
    "data": {
        "layout": "image-folder",
        "train_steps": [{"step": "random_resized_crop", "size": 64}, {"step": "flip"}],
    },
    "model": {"name": "small_resnet"},
    "optimiser": {"rate": 0.01},
}


def steps_of(recipe: Recipe, bare_first: bool) -> dict[str, Step]:
    """A few batches by each loop."""
    sets = load_sets(recipe)
    options = dict(recipe.model.model_extra or {})
    made: dict[str, Any] = {}
    for which in ("bare", "recipe") if bare_first else ("recipe", "bare"):
        if which == "recipe":
            made["run"] = preparing.prepared(recipe, processes.make_fabric(recipe, "cpu", 1, 1), sets, None)
        else:
            made["model"] = build(recipe.model.name, num_classes=len(sets.train.classes), **options).train()
    run, model = made["run"], made["model"]
    loss, optimiser = recipe.build_loss(), recipe.optimiser.build(model)
    order = [[index for _, index in batch] for batch in run.batches][:BATCHES]
    heard: list[dict[str, float]] = []

    def bare() -> None:
        for rows in order:
            batch = run.pipeline.batch(rows)
            inputs = normalised(batch.inputs, *recipe.data.normalisation)
            optimiser.zero_grad()
            value = loss(model(inputs), batch.labels)
            value.backward()
            optimiser.step()

    def by_recipe() -> None:
        run.model.train()
        for rows in order:
            numbers = stepping.step(run, run.pipeline.batch(rows))
            run.progress.step += 1
            heard.append(numbers)

    return {"bare": bare, "recipe": by_recipe}


def overhead(title: str, recipe: Recipe, rounds: int, repeats: int) -> dict[str, harness.Timing]:
    """Time both loops, made anew several times."""
    whole: dict[str, harness.Timing] = {}
    for repeat in range(repeats):
        steps = steps_of(recipe, bare_first=repeat % 2 == 0)
        for step in steps.values():
            step()
        name = f"{title} ({repeat + 1} of {repeats})"
        for which, timing in harness.interleave(steps, rounds=rounds, references=("bare",), title=name).items():
            whole.setdefault(which, harness.Timing(timing.calls)).seconds.extend(timing.seconds)
    return whole


def reading(workers: int, images: int) -> tuple[float, float]:
    """Images per second of an epoch on photographs, and cores that were busy."""
    data = photographs(images)
    plain = PHOTOGRAPHS | {"training": {"batch_size": 64, "workers": workers}}
    recipe = check(plain, "photographs")
    sets = Sets(data, None, data, {})
    run = preparing.prepared(recipe, processes.make_fabric(recipe, "cpu", 1, 1), sets, None)
    run.model.train()
    seen = 0
    start, before = time.perf_counter(), _processor_seconds()
    for batch in run.loader:
        stepping.step(run, batch)
        seen += len(batch)
    seconds = time.perf_counter() - start
    del run.__dict__["loader"]  # its workers end, and their time is counted
    gc.collect()
    return seen / seconds, (_processor_seconds() - before) / seconds


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench training", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=1024, help="photographs of the second table")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    records, rows = [], []
    for title, plain in RECIPES.items():
        say(title)
        neighbours = harness.Neighbours()
        timings = overhead(title, check(plain, title), args.rounds, args.repeats)
        others = neighbours.cores()
        seconds = {name: statistics.median(s for s in t.seconds if s is not None) for name, t in timings.items()}
        ratio = harness.ratio(timings["recipe"], timings["bare"])
        verdict = "ok" if ratio.median <= LIMIT else f"over {LIMIT:g}"
        busy = " (others were busy)" if others is not None and others > BUSY else ""
        rates = {name: BATCHES / seconds[name] for name in ("bare", "recipe")}
        rows.append((title, *(f"{rate:.1f}" for rate in rates.values()), str(ratio), verdict + busy))
        records.append(
            {"title": title, "steps_per_second": rates, "ratio": ratio._asdict(), "verdict": verdict, "others": others}
        )
    say("photographs")
    reading(0, 128)  # files are made and read once
    read = {workers: reading(workers, args.images) for workers in (0, 1, 2)}
    print()
    harness.print_table(("recipe", "bare, steps/s", "by recipe, steps/s", "time by bare", "verdict"), rows)
    print()
    found = [(str(workers), f"{rate:.0f}", f"{cores:.2f}") for workers, (rate, cores) in read.items()]
    harness.print_table(("workers", "images/s", f"cores busy, of {os.cpu_count()}"), found)
    settings = {
        "threads": args.threads,
        "rounds": args.rounds,
        "repeats": args.repeats,
        "images": args.images,
        "limit": LIMIT,
    }
    environment = {"environment": harness.environment(), **settings}
    readers = [{"workers": w, "images_per_second": r, "cores": c} for w, (r, c) in read.items()]
    harness.write_json(
        Path("benchmarks/results/training.json"), {"recipes": records, "reading": readers, **environment}
    )


if __name__ == "__main__":
    main()
