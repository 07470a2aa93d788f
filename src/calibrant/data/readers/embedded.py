"""The embedded data sets, given by name instead of a path: ``calibrant data inspect scenes``."""

from __future__ import annotations

from typing import Literal

import numpy as np

from calibrant.data.dataset import Dataset
from calibrant.data.readers._folder import DataFolder, Splits, reader
from calibrant.data.sources import ImageArray
from calibrant.data.splits import hold_out


def _splits_of(name: str) -> Splits:
    # A folder of that name in the current folder takes precedence over the embedded set.
    return lambda root: ("train", "val", "test") if str(root) == name and not root.exists() else ()


@reader("scenes", summary="no files: drawn from a seed, with a known truth", splits=_splits_of("scenes"))
def embedded_scenes(
    folder: DataFolder,
    *,
    samples: int | None = None,
    seed: int = 0,
    shift: Literal["texture", "sketch"] | None = None,
    context: float = 0.8,
    ambiguous: float = 0.2,
    size: int = 32,
) -> Dataset:
    """Draw scenes; options as for `calibrant.data.scenes.draw`."""
    from calibrant.data.scenes import scenes

    return scenes(
        folder.split, samples=samples, seed=seed, shift=shift, context=context, ambiguous=ambiguous, size=size
    )


@reader(
    "scene-masks", summary="no files: the drawn scenes with a label for every pixel", splits=_splits_of("scene-masks")
)
def embedded_scene_masks(
    folder: DataFolder,
    *,
    samples: int | None = None,
    seed: int = 0,
    shift: Literal["texture", "sketch"] | None = None,
    context: float = 0.8,
    ambiguous: float = 0.0,
    size: int = 32,
    families: int = 16,
) -> Dataset:
    """Draw scenes with masks; options as for `calibrant.data.scene_masks.scene_masks`."""
    from calibrant.data.scene_masks import scene_masks

    return scene_masks(
        folder.split, samples=samples, seed=seed, shift=shift, context=context, ambiguous=ambiguous, size=size,
        families=families,
    )  # fmt: skip


@reader("digits", summary="no files: scikit-learn's handwritten digits", splits=_splits_of("digits"))
def embedded_digits(folder: DataFolder, *, seed: int = 0) -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8 x 8, split by a seed: 1,047 train, 300 val, 450 test."""
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    bunch = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # the values are 0 to 16
    ids = tuple(f"digits/{i:04}" for i in range(len(pixels)))
    classes = tuple(str(k) for k in range(10))
    everything = Dataset("digits", "train", classes, ids, bunch.target, ImageArray(pixels, "digits"))
    train, test = hold_out(everything, count=450, seed=seed)
    train, val = hold_out(train, count=300, seed=seed)
    return {"train": train, "val": val, "test": test.replace(split="test")}[folder.split]
