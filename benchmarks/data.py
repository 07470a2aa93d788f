"""Training input: what object-aware targets cost, and how fast images are decoded and augmented, in images per second.

    ./dev bench data                     JPEGs made for the purpose: 1024 of 500 x 375 pixels with boxes, crops of 224
    ./dev bench data --folder DIR        the training images of a data set with boxes that Calibrant can read
    ./dev bench data --rounds 5 --images 64 --workers 0

Each step reads, decodes and augments the same JPEGs (random resized crop, flip, normalisation) into one float batch:
"plain" is Calibrant's pipeline without boxes; "object-aware" the same with boxes, objectness and adaptive targets;
"mask" is ALS's own way, a mask that goes through the same crop and whose pixels are counted; "v2 on tensors" and "v2
on PIL" are torchvision.transforms.v2 as its documentation writes it, decoding with PIL (no compiled decoder needed).
Ratios are medians over interleaved rounds in one process on one thread; with --workers the whole loop runs in a
DataLoader.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import Tensor

from benchmarks import _harness as harness
from benchmarks._harness import Step, say
from benchmarks._metric_rows import BUSY
from calibrant import _torchvision
from calibrant.data import (
    Batches,
    Boxes,
    Dataset,
    ImageFiles,
    Pipeline,
    RandomFlip,
    RandomResizedCrop,
    normalised,
    read,
)
from calibrant.data.rendering import render
from calibrant.data.transforms import draw_view
from calibrant.targets import adaptive_targets

_torchvision.ensure()
from torchvision.transforms import v2  # noqa: E402  (its operators first)

FOLDER = Path("build/data-bench")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64
PLAIN, AWARE, MASK, TENSORS, PILS = "plain", "object-aware", "mask", "v2 on tensors", "v2 on PIL"
#: The most that object-aware input may take of plain input (ALS's own run took 1.54).
LIMIT = 1.03


def photographs(number: int) -> Dataset:
    """JPEGs of the size of ImageNet's, with photograph-like detail, and one to three boxes each."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    boxes, names = [], []
    for i in range(number):
        corners = random.uniform(0, 0.6, (int(random.integers(1, 4)), 2)) * (500, 375)
        boxes.append(np.concatenate([corners, corners + random.uniform(0.1, 0.4, corners.shape) * (500, 375)], axis=1))
        names.append(f"{i:04}.jpg")
        if (FOLDER / names[-1]).exists():
            continue
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375), 3)
        draw = ImageDraw.Draw(coarse)
        for box in boxes[-1]:
            draw.ellipse(tuple(box), fill=tuple(int(c) for c in random.integers(0, 256, 3)))
        grain = random.normal(0, 12, (375, 500, 3))
        pixels = np.clip(np.asarray(coarse.filter(ImageFilter.GaussianBlur(1))) + grain, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(FOLDER / names[-1], quality=90)
    labels = np.arange(number) % 10
    classes = tuple(str(k) for k in range(10))
    return Dataset(
        "photographs", "train", classes, tuple(names), labels, ImageFiles(FOLDER, tuple(names)), Boxes.of(boxes)
    )


def steps_of(data: Dataset, size: int) -> dict[str, Step]:
    """One batch by each way; the samples of a batch are the same for all."""
    chain = [RandomResizedCrop(size), RandomFlip()]
    bare = Pipeline(data.replace(boxes=None), chain)
    aware = Pipeline(data, chain)
    turn = iter(range(10**9))
    rows = np.random.default_rng(1).permutation(len(data))
    K = len(data.classes)

    def indices() -> list[int]:
        first = next(turn) * BATCH
        return [int(rows[(first + i) % len(rows)]) for i in range(BATCH)]

    def plain() -> Tensor:
        return normalised(bare.batch(indices()).inputs, MEAN, STD)

    def object_aware() -> tuple[Tensor, Tensor]:
        batch = aware.batch(indices())
        assert batch.objectness is not None
        return normalised(batch.inputs, MEAN, STD), adaptive_targets(batch.labels, batch.objectness, K)

    def mask() -> tuple[Tensor, Tensor]:
        pixels, shares, labels = [], [], []
        for i in indices():
            image = data.inputs[i]
            view = draw_view(chain, image.size, np.random.default_rng(i))
            stencil = Image.new("L", image.size)
            draw = ImageDraw.Draw(stencil)
            assert data.boxes is not None
            for x1, y1, x2, y2 in data.boxes[i]:
                draw.rectangle((x1, y1, x2, y2), fill=255)
            pixels.append(render(image, view))
            shares.append((render(stencil, view) > 127).mean())
            labels.append(int(data.labels[i]))
        images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        return normalised(images, MEAN, STD), adaptive_targets(torch.tensor(labels), torch.tensor(shares), K)

    tail = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    augment = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
    chains = {
        TENSORS: v2.Compose([v2.PILToTensor(), *augment, *tail]),
        PILS: v2.Compose([*augment, v2.PILToTensor(), *tail]),
    }

    def torchvision(transform: Any) -> Step:
        return lambda: torch.stack([transform(data.inputs[i]) for i in indices()])

    ours: dict[str, Step] = {PLAIN: plain, AWARE: object_aware, MASK: mask}
    return ours | {name: torchvision(transform) for name, transform in chains.items()}


class _Plain(torch.utils.data.Dataset[Any]):
    """A torchvision data set as one writes it."""

    def __init__(self, data: Dataset, size: int):
        self.data = data
        self.transform = v2.Compose([
            v2.PILToTensor(), v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.data.inputs[index]), int(self.data.labels[index])


def epochs_with_workers(data: Dataset, size: int, workers: int, rounds: int) -> dict[str, list[float]]:
    """Images per second of whole epochs through a DataLoader, in turns."""
    chain = [RandomResizedCrop(size), RandomFlip()]
    batches = Batches(len(data), BATCH)
    loaders: dict[str, Any] = {
        PLAIN: Pipeline(data.replace(boxes=None), chain).loader(batches, workers),
        AWARE: Pipeline(data, chain).loader(batches, workers),
        TENSORS: torch.utils.data.DataLoader(
            _Plain(data, size), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        ),
    }
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(rounds + 1):  # the first wakes the workers
        for name, loader in loaders.items():
            start = time.perf_counter()
            for batch in loader:
                if name != TENSORS:
                    normalised(batch.inputs, MEAN, STD)
                    if batch.objectness is not None:
                        adaptive_targets(batch.labels, batch.objectness, len(data.classes))
            if turn:
                rates[name].append(len(data) / (time.perf_counter() - start))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench data", description=__doc__.split("\n")[0])
    parser.add_argument("--folder", help="a data set with boxes")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--size", type=int, help="side of the crops; 224, with --folder 64")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2, help="0 leaves the DataLoader part out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    say("reading the images")
    if args.folder:
        data = read(args.folder, "train")
        data = data.take(np.linspace(0, len(data) - 1, min(len(data), 4 * args.images)).astype(int))
    else:
        data = photographs(args.images)
    size = args.size or (64 if args.folder else 224)
    steps = steps_of(data, size)
    for step in steps.values():
        step()
    neighbours = harness.Neighbours()
    timings = harness.interleave(steps, rounds=args.rounds, references=(PLAIN, TENSORS), title=data.title)
    others = neighbours.cores()
    rows = []
    for name, timing in timings.items():
        seconds = statistics.median(s for s in timing.seconds if s is not None)
        by = {other: harness.ratio(timing, timings[other]) for other in (PLAIN, TENSORS)}
        limit = {AWARE: (PLAIN, LIMIT), PLAIN: (TENSORS, 1.0)}.get(name)
        verdict = "-" if limit is None else "ok" if by[limit[0]].median <= limit[1] else f"over {limit[1]:g}"
        ratios = {other: ratio._asdict() for other, ratio in by.items()}
        rows.append({"name": name, "images per second": BATCH / seconds, "ratios": ratios, "verdict": verdict})
    print(f"\n{data.title}: {len(data)} images, crops of {size} x {size}, batches of {BATCH}, one thread\n")
    if others is not None and others > BUSY:
        print(f"OTHERS WERE BUSY ON {others:g} CORES MEANWHILE: the times below are not to be trusted\n")
    harness.print_table(
        ("input", "images/s", "time by plain", "time by v2 on tensors", "verdict"),
        [
            (
                row["name"],
                f"{row['images per second']:.0f}",
                *(str(harness.Ratio(**row["ratios"][other])) for other in (PLAIN, TENSORS)),
                row["verdict"],
            )
            for row in rows
        ],
    )
    record: dict[str, Any] = {"title": data.title, "images": len(data), "size": size, "limit": LIMIT, "rows": rows}
    if args.workers:
        rates = epochs_with_workers(data, size, args.workers, max(3, args.rounds // 3))
        print(f"\nWhole epochs through a DataLoader with {args.workers} workers\n")
        medians = {name: statistics.median(values) for name, values in rates.items()}
        harness.print_table(
            ("input", "images/s", "time by plain"),
            [(name, f"{rate:.0f}", f"{medians[PLAIN] / rate:.3g}") for name, rate in medians.items()],
        )
        record["workers"] = {"number": args.workers, "images per second": medians}
    record |= {"cores_of_others": others, "environment": harness.environment(), "rounds": args.rounds}
    file = Path("benchmarks/results") / ("data-folder.json" if args.folder else "data.json")
    harness.write_json(file, record)


if __name__ == "__main__":
    main()
