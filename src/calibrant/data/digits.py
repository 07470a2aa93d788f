"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8 that come with the library, no download."""

from __future__ import annotations

import numpy as np

from calibrant.data.dataset import Dataset
from calibrant.data.sources import ImageArray
from calibrant.data.splits import hold_out

#: Of 1,797 images.
TEST, VAL = 450, 300


def digits(split: str = "train", *, seed: int = 0) -> Dataset:
    """The digits, split anew for every seed: 1,047 to train, 300 to validate, 450 to test.

    Args:
        split: ``"train"``, ``"val"`` or ``"test"``.
        seed: Of the split.

    Example:
        >>> train, test = digits("train"), digits("test")
        >>> len(train), len(test), train[0].input.size, len(train.classes)
        (1047, 450, (8, 8), 10)
    """
    if split not in ("train", "val", "test"):
        raise ValueError(f"digits has the splits 'train', 'val' and 'test', got {split!r}.")
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    found = load_digits()
    pixels = np.round(found.images * (255 / 16)).astype(np.uint8)  # the values are 0 to 16
    everything = Dataset(
        "digits",
        "train",
        tuple(str(k) for k in range(10)),
        tuple(f"digits/{i:04}" for i in range(len(pixels))),
        found.target,
        ImageArray(pixels, "digits"),
    )
    rest, test = hold_out(everything, count=TEST, seed=seed)
    train, val = hold_out(rest, count=VAL, seed=seed)
    return {"train": train, "val": val, "test": test.replace(split="test")}[split]
