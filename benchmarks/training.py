"""What the training loop costs: steps per second by recipe against a bare PyTorch loop that does the same work.

    ./dev bench training                    networks on data in memory; photographs read by workers
    ./dev bench training --rounds 40 --threads 1

"bare" is the loop one writes over tensors that lie in memory: it takes rows, crops and flips a batch of them with a few
tensor operations, normalises, and steps the same model by the same loss and optimiser. "recipe" is the loop of
`calibrant.training`, with input by its pipeline (a sample's randomness depends on seed, epoch and index alone), its
schedule, seeds per step, checks, the loss's terms every 25 steps and everything else but checkpoints and validation.
The data are noise of the shapes of Fashion-MNIST, CIFAR-10 and 20 Newsgroups, and the embedded scenes. Ratios are
medians over interleaved rounds; where in memory a model lies changes its speed by a few per cent, so both are made anew
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import _harness as harness
from benchmarks._harness import Step, say
from benchmarks._metric_rows import BUSY
from benchmarks.data import photographs
from calibrant.data import Dataset, ImageArray, Rows
from calibrant.data.scenes import scenes
from calibrant.models import build
from calibrant.training.classification import Classification
from calibrant.training.datasets import Sets
from calibrant.training.distributed import make_fabric
from calibrant.training.loop import step as train_step
from calibrant.training.recipe import Recipe, check_recipe
from calibrant.training.run import prepare_run

#: The most that the loop may take of the bare one, input included.
LIMIT = 1.1

CROP = [{"step": "random_crop", "size": 32, "padding": 4}, {"step": "flip"}]


@dataclass(frozen=True)
class Case:
    """Data in memory, a network, and how both are trained."""

    data: Callable[[], Dataset]
    model: dict[str, Any]
    loss: dict[str, Any]
    batch_size: int
    padding: int | None = None  # of random crops, which are then flipped by chance
    batches: int = 15

    def recipe(self, title: str) -> Recipe:
        """The recipe; its data are given apart."""
        steps = {} if self.padding is None else {"train_steps": CROP}
        kind = {"layout": "arrays"} | steps
        training = {"epochs": 1, "batch_size": self.batch_size}
        plain = {"data": kind, "model": self.model, "loss": self.loss, "optimiser": {"rate": 0.01}}
        return check_recipe(plain | {"training": training}, title)


def images(size: int, colours: bool, number: int = 4096) -> Dataset:
    """Noise in the shape of a known data set."""
    shape = (number, size, size, 3) if colours else (number, size, size)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return _labelled(ImageArray(pixels), 10)


def texts(number: int = 2048, length: int = 300) -> Dataset:
    """Word indices."""
    return _labelled(Rows(np.random.default_rng(0).integers(0, 20_000, (number, length))), 20)


def _labelled(inputs: Any, classes: int) -> Dataset:
    number = len(inputs)
    labels = np.random.default_rng(1).integers(0, classes, number)
    names = tuple(str(k) for k in range(classes))
    return Dataset("noise", "train", names, tuple(map(str, range(number))), labels, inputs)


CASES = {
    "Fashion-MNIST, MLP 2 x 1024, batches of 64": Case(
        lambda: images(28, False), {"name": "mlp", "input_size": [3, 28, 28]}, {"name": "lr"}, 64
    ),
    "CIFAR-10, ResNet-20, batches of 128": Case(
        lambda: images(32, True), {"name": "resnet20"}, {"name": "ls"}, 128, 4, batches=2
    ),
    "scenes, small CNN, batches of 128": Case(
        lambda: scenes("train", samples=2000), {"name": "small_cnn"}, {"name": "acls"}, 128, 4
    ),
    "20 Newsgroups, GPCN, batches of 128": Case(
        texts, {"name": "gpcn", "vocabulary_size": 20_000, "dimensions": 100}, {"name": "mbls"}, 128, batches=1
    ),
}


#: What reads enough to be worth reading ahead.
PHOTOGRAPHS: dict[str, Any] = {
    "data": {"layout": "image-folder", "train_steps": [{"step": "random_resized_crop", "size": 64}, {"step": "flip"}]},
    "model": {"name": "small_resnet"},
    "optimiser": {"rate": 0.01},
}


def steps_of(case: Case, title: str, bare_first: bool) -> dict[str, Step]:
    """A few batches by each loop."""
    recipe, data = case.recipe(title), case.data()
    sets = Sets(data, None, data, {})
    options = dict(recipe.model.model_extra or {})
    made: dict[str, Any] = {}
    for which in ("bare", "recipe") if bare_first else ("recipe", "bare"):
        if which == "recipe":
            made["run"] = prepare_run(recipe, make_fabric(recipe, "cpu", 1, 1), sets, Classification())
        else:
            made["model"] = build(recipe.model.name, num_classes=len(data.classes), **options).train()
    run, model = made["run"], made["model"]
    loss, optimiser = recipe.build_loss(), recipe.optimiser.build(model)
    order = [[index for _, index in batch] for batch in run.batches][: case.batches]
    inputs, labels = _tensors(data), torch.from_numpy(data.labels)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in recipe.data.normalisation)
    heard: list[dict[str, float]] = []

    def bare() -> None:
        for rows in order:
            batch = inputs[rows]
            if batch.dtype == torch.uint8:
                batch = batch if case.padding is None else cropped(batch, case.padding)
                batch = batch.expand(-1, 3, -1, -1).float().div_(255).sub_(mean).div_(std)
            optimiser.zero_grad()
            value = loss(model(batch), labels[rows])
            value.backward()
            optimiser.step()

    def by_recipe() -> None:
        run.model.train()
        for rows in order:
            numbers = train_step(run, run.pipeline.batch(rows))
            run.progress.step += 1
            heard.append(numbers)

    return {"bare": bare, "recipe": by_recipe}


def _tensors(data: Dataset) -> torch.Tensor:
    """The inputs as one tensor, images as [N, C, H, W]."""
    if isinstance(data.inputs, Rows):
        return torch.from_numpy(data.inputs.values)
    pixels = torch.from_numpy(data.inputs.pixels)
    return pixels[:, None].contiguous() if pixels.dim() == 3 else pixels.permute(0, 3, 1, 2).contiguous()


def cropped(batch: torch.Tensor, padding: int) -> torch.Tensor:
    """Random crops of the images' own size after padding, flipped by chance: a few tensor operations."""
    number, channels, height, width = batch.shape
    padded = torch.nn.functional.pad(batch, [padding] * 4)
    top, left = torch.randint(0, 2 * padding + 1, (2, number))
    y, x = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
    x = torch.where(torch.rand(number, 1) < 0.5, x.flip(1), x)
    image, channel = torch.arange(number)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return padded[image, channel, y[:, None, :, None], x[:, None, None, :]]


def overhead(title: str, case: Case, rounds: int, repeats: int) -> dict[str, harness.Timing]:
    """Time both loops, made anew several times."""
    whole: dict[str, harness.Timing] = {}
    for repeat in range(repeats):
        steps = steps_of(case, title, bare_first=repeat % 2 == 0)
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
    recipe = check_recipe(plain, "photographs")
    sets = Sets(data, None, data, {})
    run = prepare_run(recipe, make_fabric(recipe, "cpu", 1, 1), sets, Classification())
    run.model.train()
    seen = 0
    start, before = time.perf_counter(), _processor_seconds()
    for batch in run.loader:
        train_step(run, batch)
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
    for title, case in CASES.items():
        say(title)
        neighbours = harness.Neighbours()
        timings = overhead(title, case, args.rounds, args.repeats)
        others = neighbours.cores()
        seconds = {name: statistics.median(s for s in t.seconds if s is not None) for name, t in timings.items()}
        ratio = harness.ratio(timings["recipe"], timings["bare"])
        verdict = "ok" if ratio.median <= LIMIT else f"over {LIMIT:g}"
        busy = " (others were busy)" if others is not None and others > BUSY else ""
        rates = {name: case.batches / seconds[name] for name in ("bare", "recipe")}
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
