"""The embedded data sets, given by name instead of a path: ``calibrant data inspect scenes``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant.data.dataset import Dataset
from calibrant.data.readers._folder import DataFolder, reader
from calibrant.data.scenes import scene_masks, scenes
from calibrant.data.sources import ImageArray
from calibrant.data.splits import hold_out

_SPLITS = ("train", "val", "test")


def _register(name: str, summary: str, make: Callable[..., Dataset]) -> None:
    """Register ``make(split, **options)`` as a reader, with its options and their types."""

    # A folder of that name in the current folder takes precedence over the embedded set.
    @reader(name, summary=summary, splits=lambda root: _SPLITS if str(root) == name and not root.exists() else ())
    @functools.wraps(make)
    def read(folder: DataFolder, **options: Any) -> Dataset:
        return make(folder.split, **options)


def digits(split: str, *, seed: int = 0) -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8 x 8, split by a seed: 1,047 train, 300 val, 450 test."""
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    bunch = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # the values are 0 to 16
    ids = tuple(f"digits/{i:04}" for i in range(len(pixels)))
    classes = tuple(str(k) for k in range(10))
    everything = Dataset("digits", "train", classes, ids, bunch.target, ImageArray(pixels, "digits"))
    train, test = hold_out(everything, count=450, seed=seed)
    train, val = hold_out(train, count=300, seed=seed)
    return {"train": train, "val": val, "test": test.replace(split="test")}[split]


_register("scenes", "no files: drawn from a seed, with a known truth", scenes)
_register("scene-masks", "no files: the drawn scenes with a label for every pixel", scene_masks)
_register("digits", "no files: scikit-learn's handwritten digits", digits)
