"""The embedded sets by name, wherever a path is asked for: ``calibrant data inspect scenes``."""

from __future__ import annotations

from typing import Literal

import numpy as np

from calibrant.data.dataset import Dataset
from calibrant.data.readers._folder import DataFolder, Splits, reader
from calibrant.data.sources import ImageArray
from calibrant.data.splits import hold_out


def _splits_of(name: str) -> Splits:
    # A folder of that name in the current one goes before the embedded set.
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
    """`calibrant.data.scenes.scenes`, which says what the options mean."""
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
    """`calibrant.data.scenes.scene_masks`, which says what the options mean."""
    from calibrant.data.scene_masks import scene_masks

    return scene_masks(
        folder.split, samples=samples, seed=seed, shift=shift, context=context, ambiguous=ambiguous, size=size,
        families=families,
    )  # fmt: skip


@reader("digits", summary="no files: scikit-learn's handwritten digits", splits=_splits_of("digits"))
def embedded_digits(folder: DataFolder, *, seed: int = 0) -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8 x 8: 1,047 to train, 300 to validate, 450 to test, by a seed."""
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    bunch = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # the values are 0 to 16
    ids = tuple(f"digits/{i:04}" for i in range(len(pixels)))
    classes = tuple(str(k) for k in range(10))
    everything = Dataset("digits", "train", classes, ids, bunch.target, ImageArray(pixels, "digits"))
    rest, test = hold_out(everything, count=450, seed=seed)
    train, val = hold_out(rest, count=300, seed=seed)
    return {"train": train, "val": val, "test": test.replace(split="test")}[folder.split]
