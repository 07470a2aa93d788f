"""Wrong labels on purpose, to see what a method makes of them: symmetric or pair noise.

Which samples get a wrong label, and which, follows from a keyed hash of their ids, as for splits: it depends neither on
the order of the files nor on the other samples' labels.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from calibrant.base.checks import check_choice, check_number
from calibrant.data.dataset import Dataset
from calibrant.data.splits import ordered_by_hash

NoiseKind = Literal["symmetric", "pair"]


def with_wrong_labels(dataset: Dataset, rate: float, *, kind: NoiseKind = "symmetric", seed: int = 0) -> Dataset:
    """The data set with a share of its labels replaced by wrong ones; known class probabilities are dropped.

    Args:
        dataset: Samples with one class each, or none: those without a class stay as they are.
        rate: Share of the samples with a class that get a wrong label, rounded to whole samples. In much of the
            literature symmetric noise may draw the right label again, so that its rate is larger by K/(K-1).
        kind: ``"symmetric"``: one of the other classes, all alike; ``"pair"``: the next class, of the last the first.
        seed: Other seeds choose other samples and classes.

    Example:
        >>> import numpy as np
        >>> from calibrant.data import Rows
        >>> data = Dataset("tiny", "train", ("a", "b", "c"), ("1", "2", "3", "4"), [0, 1, 2, 2], Rows(np.zeros((4, 2))))
        >>> noisy = with_wrong_labels(data, 0.5, kind="pair")
        >>> int((noisy.labels != data.labels).sum()), noisy.ids == data.ids
        (2, True)
    """
    check_choice("kind", kind, ("symmetric", "pair"))
    check_number("rate", rate, 0.0, 1.0)
    if dataset.masks is not None or dataset.boxes is not None:
        what = "masks" if dataset.masks is not None else "boxes, whose classes would contradict the labels"
        raise ValueError(f"{dataset.title}: wrong labels are for data with one class per sample, and it has {what}")
    classes = len(dataset.classes)
    if classes < 2:
        raise ValueError(f"{dataset.title}: wrong labels need at least 2 classes, got {classes}")
    order = ordered_by_hash(dataset.ids, seed, "calibrant wrong labels")
    labelled = order[dataset.labels[order] >= 0]
    rows = labelled[: round(rate * len(labelled))]
    labels = dataset.labels.copy()
    for row in rows:
        labels[row] = (labels[row] + (1 if kind == "pair" else _step(dataset.ids[row], seed, classes))) % classes
    return dataset.replace(labels=labels, soft=None)


def _step(name: str, seed: int, classes: int) -> int:
    """How far the wrong class is from the right one: 1 to classes - 1, all alike."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=f"calibrant wrong class {seed}".encode())
    return 1 + int.from_bytes(digest.digest(), "big") % (classes - 1)
