"""What the training loop costs: steps per second by recipe against a bare PyTorch loop that does the same work.

    ./dev bench training                    a small CNN on scenes and an MLP on digits
    ./dev bench training --rounds 40 --threads 1

Both loops take the same batches from the same pipeline, normalise them, and step the same model by the same loss and
optimiser. "bare" is the loop one writes; "recipe" is the one of `calibrant.training`, with its schedule, seeds per
step, checks, the loss's terms every 25 steps and everything else but checkpoints and validation. Ratios are medians
over interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

from benchmarks import _harness as harness
from benchmarks._harness import Step, say
from benchmarks._metric_rows import BUSY
from calibrant.data import normalised
from calibrant.models import build
from calibrant.training import loop, preparing
from calibrant.training.recipe import Recipe, check
from calibrant.training.sets import load_sets

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


def steps_of(recipe: Recipe) -> dict[str, Step]:
    """A few batches by each loop."""
    sets = load_sets(recipe)
    run = preparing.prepared(recipe, preparing.make_fabric(recipe, "cpu", 1, 1), sets, None)
    options = dict(recipe.model.model_extra or {})
    model = build(recipe.model.name, num_classes=len(sets.train.classes), seed=recipe.seed, **options).train()
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
            numbers = loop.step(run, run.pipeline.batch(rows))
            run.progress.step += 1
            heard.append(numbers)

    return {"bare": bare, "recipe": by_recipe}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench training", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    records, rows = [], []
    for title, plain in RECIPES.items():
        say(title)
        steps = steps_of(check(plain, title))
        for step in steps.values():
            step()
        neighbours = harness.Neighbours()
        timings = harness.interleave(steps, rounds=args.rounds, references=("bare",), title=title)
        others = neighbours.cores()
        seconds = {name: statistics.median(s for s in t.seconds if s is not None) for name, t in timings.items()}
        ratio = harness.ratio(timings["recipe"], timings["bare"])
        verdict = "ok" if ratio.median <= LIMIT else f"over {LIMIT:g}"
        busy = " (others were busy)" if others is not None and others > BUSY else ""
        rates = [f"{BATCHES / seconds[name]:.1f}" for name in ("bare", "recipe")]
        rows.append((title, *rates, str(ratio), verdict + busy))
        records.append(
            {"title": title, "seconds": seconds, "ratio": ratio._asdict(), "verdict": verdict, "others": others}
        )
    print()
    harness.print_table(("recipe", "bare, steps/s", "by recipe, steps/s", "time by bare", "verdict"), rows)
    environment = {"environment": harness.environment(), "threads": args.threads, "rounds": args.rounds}
    harness.write_json(Path("benchmarks/results/training.json"), {"recipes": records, **environment})


if __name__ == "__main__":
    main()
