"""Memory for maps of Cityscapes' size: 1024 x 2048 pixels, 19 classes, 152 MB of logits each in single precision.

    python -m benchmarks.maps [--images 2 6] [--output maps.json]

Each row is a process of its own: an audit of a file of whole maps (in half precision), and predictions of as many
images with 5,000 pixels kept of each, by a DeepLab v3+ of width 2, an image at a time. Memory is the most that the
process held (`benchmarks._memory.peak_resident`), less what it held after it had done the same with one small map. What
streams needs the same for six maps as for two.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks._memory import peak_resident

SIZE, CLASSES, PIXELS = (1024, 2048), 19, 5000
CASES = ("audit", "predict")


def audit_maps(folder: Path, images: int, size: tuple[int, int]) -> None:
    """Write a file of maps, a map at a time, and audit it."""
    from calibrant import Predictions, audit

    random = np.random.default_rng(0)
    for number in range(images):
        labels = random.integers(0, CLASSES, (1, *size))
        logits = random.standard_normal((1, CLASSES, *size), dtype=np.float32).astype(np.float16)
        maps = Predictions.from_logits(logits, labels, kind="segmentation", ignore_index=255)
        maps.save(folder / f"{size[0]}-{number}.npz")
        del logits, maps
    audit(Predictions.open(f"{folder}/{size[0]}-*.npz", kind="segmentation", ignore_index=255), replicates=50)


def predict_maps(images: int, size: tuple[int, int]) -> None:
    """Predict images with some pixels kept of each."""
    import torch

    from calibrant.data import Dataset
    from calibrant.data.sources import ImageArray, MaskArray
    from calibrant.models import build
    from calibrant.training import predict
    from calibrant.training.prediction import DatasetTally

    torch.manual_seed(0)
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (images, *size, 3), dtype=np.uint8)
    masks = random.integers(0, CLASSES, (images, *size), dtype=np.uint8)
    names = tuple(f"class {k}" for k in range(CLASSES))
    ids = tuple(map(str, range(images)))
    inputs = ImageArray(pictures), MaskArray(masks)
    data = Dataset("maps", "test", names, ids, [-1] * images, inputs[0], masks=inputs[1], ignore_index=255)
    network = build("deeplabv3plus_small", num_classes=CLASSES, width=2)
    predict(network, data, batch_size=1, pixels=PIXELS, tally=DatasetTally(data))


def measure(case: str, images: int) -> int:
    """Bytes beyond those of a small map, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        before = 0
        for number, size in ((1, (64, 64)), (images, SIZE)):
            if case == "audit":
                audit_maps(Path(folder), number, size)
            else:
                predict_maps(number, size)
            before = before or peak_resident()
    return peak_resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[2, 6])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(measure(arguments.case, arguments.images[0]))
        return
    rows = []
    for case in CASES:
        for images in arguments.images:
            command = [sys.executable, "-m", "benchmarks.maps", "--case", case, "--images", str(images)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append({"case": case, "images": images, "megabytes": round(int(done.stdout) / 2**20)})
            print(f"{case:8} {images:3} maps: {rows[-1]['megabytes']:6,} MB")
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
