"""CIFAR-10H: what some fifty people each saw in the test images of CIFAR-10, as soft labels.

``cifar10h-probs.npy`` and ``cifar10h-counts.npy`` are [10000, 10] in the order of the official test batch. The images
are CIFAR-10's: ``images=`` says where. In the official batches they have that order; for image folders
``jpeg_index.csv`` (``cifar10_test_set_idx,label,path``) says which file is which row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.data.boxes import Floats, Integers
from calibrant.data.dataset import NO_CLASS, Dataset, Findings, OnError
from calibrant.data.files import UnreadableError, read_lines
from calibrant.data.layouts import layout
from calibrant.data.readers._array_files import read_npy
from calibrant.data.readers._checks import check_split, csv_rows, shown, whole
from calibrant.data.readers._shared import check_any, never_raising
from calibrant.data.readers.cifar import CIFAR10, cifar10
from calibrant.data.sources import ImageArray, Rows

PROBS, COUNTS, INDEX = "cifar10h-probs.npy", "cifar10h-counts.npy", "jpeg_index.csv"

#: How far from 1 the sum of a row may be, and how far probabilities from counts.
TOLERANCE = 1e-6


def _splits(root: Path) -> tuple[str, ...]:
    return ("test",) if (root / PROBS).is_file() or (root / COUNTS).is_file() else ()


@layout(
    "cifar-10h",
    summary="cifar10h-probs.npy or cifar10h-counts.npy, with jpeg_index.csv for images in folders",
    splits=never_raising(_splits),
)
def cifar10h(
    root: str | Path, split: str = "test", *, on_error: OnError = "raise", images: str | Path | None = None
) -> Dataset:
    """Read CIFAR-10H.

    Args:
        root: The folder of its files.
        split: ``"test"``, the only one.
        on_error: What to do with rows that are no probabilities, and with images that have none.
        images: CIFAR-10, in any form that its reader takes; if left out, the inputs are the rows of counts.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    findings = Findings(on_error)
    counts, soft = _votes(root)
    sums = soft.sum(axis=1)
    good = (soft >= 0).all(axis=1) & (np.abs(sums - 1) <= TOLERANCE)  # NaN is neither
    held = PROBS if (root / PROBS).is_file() else COUNTS
    for row in np.flatnonzero(~good):
        findings.skip(f"{held}[{row}]", "votes that are no probabilities", f"they sum to {sums[row]:g}")
    labels, rows_of = _index(root, len(soft))
    if images is None:
        rows = np.flatnonzero(good)
        check_any(root, split, len(rows), findings, "row")
        if (labels[rows] == NO_CLASS).any():
            findings.odd(INDEX, "labels unknown without it, or without images")
        ids = tuple(f"test/{row:05d}" for row in rows)
        inputs = Rows(counts[rows], COUNTS)
        return Dataset(
            "cifar-10h", split, CIFAR10, ids, labels[rows], inputs, soft=soft[rows], report=findings.report()
        )
    data = cifar10(images, "test", on_error=on_error)
    if isinstance(data.inputs, ImageArray):
        if len(data) > len(soft) or (len(data) < len(soft) and not data.report.skipped):
            raise ValueError(f"{root}: {len(soft)} rows of votes for the {len(data)} images in {images}.")
        rows_of = {name: int(name.rpartition("/")[2]) for name in data.ids}
    elif not rows_of:
        raise ValueError(f"{root}: {INDEX} is needed to find the rows of images in folders, and is not there.")
    findings.add(data.report)
    kept, rows = _matched(data, rows_of, labels, good, findings)
    check_any(root, split, len(kept), findings)
    return data.take(kept, name="cifar-10h", soft=soft[rows], report=findings.report())


def _matched(
    data: Dataset, rows_of: dict[str, int], labels: Integers, good: NDArray[np.bool_], findings: Findings
) -> tuple[Integers, Integers]:
    """Which images to keep, and the row of each."""
    kept = []
    for i, name in enumerate(data.ids):
        row = rows_of.get(name, -1)
        if not 0 <= row < len(good):
            findings.skip(name, "no row of votes for the image")
        elif labels[row] not in (NO_CLASS, data.labels[i]):
            findings.skip(name, "its label is not the one of its votes", f"{data.labels[i]} and {labels[row]}")
        elif good[row]:  # else it is counted already
            kept.append((i, row))
    pairs = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _votes(root: Path) -> tuple[NDArray[np.float64], Floats]:
    """Counts and probabilities, [N, 10] each; one from the other if only one is there."""
    held = {name: _array(root / name) for name in (COUNTS, PROBS) if (root / name).is_file()}
    counts, probs = held.get(COUNTS), held.get(PROBS)
    if counts is not None:
        with np.errstate(invalid="ignore", divide="ignore"):  # a row without votes is found later
            shares = counts / counts.sum(axis=1, keepdims=True)
        if probs is None:
            return counts, shares
        if probs.shape != counts.shape:
            raise ValueError(f"{root}: {COUNTS} has {len(counts)} rows, and {PROBS} has {len(probs)}.")
        apart = np.flatnonzero((np.abs(probs - shares) > TOLERANCE).any(axis=1))
        if len(apart):
            raise ValueError(f"{root}: row {apart[0]} of {PROBS} is not that of {COUNTS} divided by its sum.")
    assert probs is not None  # the layout has one of the two
    return probs if counts is None else counts, probs


def _array(path: Path) -> NDArray[np.float64]:
    values = read_npy(path)
    if values.dtype.kind not in "iuf" or values.shape[1:] != (len(CIFAR10),):
        got = f"{values.dtype} {list(values.shape)}"
        raise UnreadableError(f"{path}: numbers [N, {len(CIFAR10)}] are expected, got {got}.")
    return np.array(values, dtype=np.float64)


def _index(root: Path, number: int) -> tuple[Integers, dict[str, int]]:
    """The label of each row, and the row of each image file, as ``jpeg_index.csv`` has them."""
    labels, rows_of = np.full(number, NO_CLASS, dtype=np.int64), {}
    path = root / INDEX
    if not path.is_file():
        return labels, {}
    for line, entry in enumerate(csv_rows(path, iter(read_lines(path))), start=1):
        if line == 1 and entry[:1] == ["cifar10_test_set_idx"]:
            continue
        try:
            row, label, name = whole(entry[0]), whole(entry[1]), entry[2]
        except (ValueError, IndexError) as error:
            raise UnreadableError(
                f"{path}: line {line} should be a row, a label and a path, got {shown(entry)}."
            ) from error
        if not (0 <= row < number and 0 <= label < len(CIFAR10)) or name in rows_of or labels[row] != NO_CLASS:
            raise UnreadableError(f"{path}: line {line} repeats a row or a path, or is outside the {number} rows.")
        labels[row], rows_of[name] = label, row
    return labels, rows_of
