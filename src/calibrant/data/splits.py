"""Splits by id: deterministic, independent of the order of files, and never overlapping.

A keyed hash of its id decides the split of a sample, so that an id is in the same split on every machine, and adding
samples moves few others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from calibrant.data.boxes import Integers
from calibrant.data.dataset import Dataset

#: The papers' hold-outs by name: what `hold_out` takes.
HOLD_OUTS: dict[str, dict[str, float | int]] = {
    "lr": {"fraction": 1 / 6},  # LR, text before its Table 1
    "acls": {"fraction": 0.1},  # ACLS, section 4.1
    "cifar-10": {"count": 5000},  # MbLS: of 50,000
    "tiny-imagenet": {"per_class": 50},  # MbLS
    "sc-imagenet": {"count": 50_000},  # SC
    "sc-cifar-100": {"count": 5000},  # SC
}


def hold_out(
    dataset: Dataset,
    *,
    fraction: float | None = None,
    count: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> tuple[Dataset, Dataset]:
    """Split off a validation set: a fraction, a count, or a count per class.

    Returns:
        The remaining and the held-out samples, both in the order of the data set.

    Example:
        >>> from calibrant.data import Rows
        >>> ids = tuple(f"{i}" for i in range(12))
        >>> data = Dataset("tiny", "train", ("a", "b"), ids, [0, 1] * 6, Rows(np.zeros((12, 2))))
        >>> train, val = hold_out(data, fraction=1 / 6)
        >>> len(train), len(val), set(train.ids) & set(val.ids)
        (10, 2, set())
        >>> hold_out(data, per_class=2)[1].counts.tolist()
        [2, 2]
    """
    sizes = {"fraction": fraction, "count": count, "per_class": per_class}
    names = [name for name, size in sizes.items() if size is not None]
    if len(names) != 1:
        raise ValueError(f"hold_out takes one of fraction, count and per_class, got {', '.join(names) or 'none'}")
    for name in set(names) - {"fraction"}:
        if isinstance(sizes[name], bool) or not isinstance(sizes[name], int):
            raise ValueError(f"{name} must be a whole number, got {sizes[name]!r}")
    order = ordered_by_hash(dataset.ids, seed)
    if per_class is not None:
        short = [(n, name) for n, name in zip(dataset.counts, dataset.classes, strict=True) if 0 <= n <= per_class]
        if per_class < 1 or short:
            reason = f"class {short[0][1]!r} has {short[0][0]}" if short else f"{per_class} is below 1"
            raise ValueError(f"{dataset.title}: {per_class} samples of every class were asked for, and {reason}")
        labels = dataset.labels[order]
        rows = np.concatenate([order[labels == k][:per_class] for k in range(len(dataset.classes))])
    else:
        if fraction is not None and not 0.0 < fraction < 1.0:
            raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
        number = count if count is not None else round(len(dataset) * (fraction or 0.0))
        if not 0 < number < len(dataset):
            raise ValueError(f"{dataset.title}: cannot hold out {number} of {len(dataset)} samples")
        rows = order[:number]
    is_held_out = np.zeros(len(dataset), dtype=bool)
    is_held_out[rows] = True
    return dataset.take(~is_held_out), dataset.take(is_held_out, split="val")


def resample(train: Dataset, test: Dataset, *, seed: int) -> tuple[Dataset, Dataset]:
    """Merge training and test data and draw them anew, at the old sizes, for every seed [LR, experimental setting].

    Example:
        >>> from calibrant.data import Rows
        >>> a = Dataset("tiny", "train", ("a", "b"), ("1", "2", "3"), [0, 1, 0], Rows(np.zeros((3, 2))))
        >>> b = Dataset("tiny", "test", ("a", "b"), ("4", "5"), [1, 0], Rows(np.ones((2, 2))))
        >>> new_train, new_test = resample(a, b, seed=1)
        >>> len(new_train), len(new_test), sorted(new_train.ids + new_test.ids)
        (3, 2, ['1', '2', '3', '4', '5'])
    """
    disjoint(train, test)
    merged = train.merged(test)
    order = ordered_by_hash(merged.ids, seed)
    return (
        merged.take(np.sort(order[: len(train)]), split=train.split),
        merged.take(np.sort(order[len(train) :]), split=test.split),
    )


def by_ids(dataset: Dataset, splits: Mapping[str, Iterable[str]]) -> dict[str, Dataset]:
    """Splits by lists of ids; an id in two lists, twice in one, or in none of the samples is an error.

    Example:
        >>> from calibrant.data import Rows
        >>> data = Dataset("tiny", "all", ("a",), ("1", "2", "3"), [0, 0, 0], Rows(np.zeros((3, 2))))
        >>> {name: part.ids for name, part in by_ids(data, {"train": ["3", "1"], "val": ["2"]}).items()}
        {'train': ('3', '1'), 'val': ('2',)}
    """
    positions = {name: i for i, name in enumerate(dataset.ids)}
    owner: dict[str, str] = {}
    result = {}
    for split, ids in splits.items():
        rows = []
        for name in ids:
            if name not in positions:
                raise ValueError(f"{dataset.title}: split {split!r} asks for the id {name!r}, which no sample has")
            if name in owner:
                raise ValueError(f"{dataset.title}: the id {name!r} is in the splits {owner[name]!r} and {split!r}")
            owner[name] = split
            rows.append(positions[name])
        result[split] = dataset.take(np.array(rows, dtype=np.int64), split=split)
    return result


def disjoint(*datasets: Dataset) -> None:
    """Raise a ValueError if an id occurs in two of the data sets."""
    owner: dict[str, str] = {}
    for dataset in datasets:
        for name in dataset.ids:
            if name in owner:
                raise ValueError(f"the id {name!r} is in {owner[name]} and in {dataset.title}: splits must not overlap")
        owner.update(dict.fromkeys(dataset.ids, dataset.title))


def ordered_by_hash(ids: tuple[str, ...], seed: int, purpose: str = "calibrant split") -> Integers:
    """All positions, ordered by the keyed hashes of their ids; another purpose gives another order."""
    key = f"{purpose} {seed}".encode()
    digests = [
        hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=key, digest_size=16).digest() for name in ids
    ]
    return np.array(sorted(range(len(ids)), key=digests.__getitem__), dtype=np.int64)
