"""What is in a data set: counts, balance, boxes, objectness, and everything odd. `calibrant data inspect` prints it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from calibrant.data.boxes import Floats, objectness, union_area
from calibrant.data.dataset import ALIKE, Dataset, Findings, Report
from calibrant.data.files import UnreadableError, read_bytes
from calibrant.data.layouts import Layout
from calibrant.data.sources import ImageFiles, TextFiles

T = TypeVar("T")
#: Passes items through and shows how far it has come: items, their number, what is being done.
Watch = Callable[[Iterable[T], int, str], Iterable[T]]

#: Boxes with a side of at most so many pixels are reported as tiny.
TINY = 2.0
#: What pixels without a class are called.
NO_CLASS_PIXELS = "(no class)"
#: Edges of the histograms of box area and objectness, as shares of the image.
EDGES = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True)
class SplitFacts:
    """One split: numbers, ready to be printed, drawn or written as JSON.

    Attributes:
        samples: How many.
        class_counts: Samples per class, by name.
        without_class: Samples that show none of the classes.
        sizes: Smallest and largest width and height of images, or lengths of texts in characters.
        modes: Images by colour mode.
        boxes: Number of boxes and of images with 0, 1, 2, ... of them, and histograms of area and objectness.
        pixels: Share of each class, and of no class, among the pixels of masks.
        report: What was skipped and what is odd.
    """

    samples: int
    class_counts: dict[str, int]
    without_class: int
    sizes: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    boxes: dict[str, Any] = field(default_factory=dict)
    pixels: dict[str, float] = field(default_factory=dict)
    report: Report = field(default_factory=Report)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        plain = {name: value for name, value in vars(self).items() if name != "report"}
        for title in ("skipped", "odd"):
            found = getattr(self.report, title)
            plain[title] = [{"what": f.what, "times": f.times, "where": list(f.where[:100])} for f in found]
        return plain


@dataclass(frozen=True)
class Inspection:
    """A data set, split by split, and what its splits share."""

    layout: str
    root: str
    name: str
    splits: dict[str, SplitFacts]
    across: Report

    @property
    def samples(self) -> int:
        """Of all splits that were looked at."""
        return sum(facts.samples for facts in self.splits.values())

    @property
    def size(self) -> str:
        """In words."""
        samples = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        return f"{samples} in {len(self.splits)} split{'s' if len(self.splits) != 1 else ''}"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "layout": self.layout,
            "root": self.root,
            "name": self.name,
            "samples": self.samples,
            "splits": {name: facts.to_json() for name, facts in self.splits.items()},
            "across_splits": [
                {"what": f.what, "times": f.times, "where": list(f.where[:100])} for f in self.across.odd
            ],
        }


def inspect(
    layout: Layout,
    root: Path,
    splits: Iterable[str],
    *,
    decode: bool = False,
    watch: Watch[Any] = lambda items, number, what: items,
    options: dict[str, Any] | None = None,
) -> tuple[Inspection, dict[str, Dataset]]:
    """Read splits of a data set (broken samples are skipped and listed) and look at every sample.

    Args:
        layout: How it lies on disk.
        root: Where.
        splits: Which.
        decode: Decode every image, to find the broken ones that look whole.
        watch: Shows progress.
        options: For the reader.
    """
    datasets = {split: layout.open(root, split, "skip", options or {}) for split in splits}
    facts = {split: _facts(dataset, decode, watch) for split, dataset in datasets.items()}
    across = Findings("skip")
    contents: dict[str, list[tuple[str, str, int]]] = {}
    for split, dataset in datasets.items():
        for digest, index in _repeated_candidates(dataset, watch):
            contents.setdefault(digest, []).append((split, dataset.ids[index], int(dataset.labels[index])))
    for copies in contents.values():
        _report_copies(copies, across)
    name = next(iter(datasets.values())).name if datasets else layout.name
    return Inspection(layout.name, str(root), name, facts, across.report()), datasets


def _facts(dataset: Dataset, decode: bool, watch: Watch[Any]) -> SplitFacts:
    findings = Findings("skip")
    findings.add(dataset.report)
    sizes, modes, areas = {}, Counter[str](), {}
    if dataset.kind == "image":
        found = _images(dataset, decode, findings, watch)
        modes = Counter(mode for _, mode in found.values())
        if found:
            dimensions = np.array([size for size, _ in found.values()])
            low, high = dimensions.min(0), dimensions.max(0)
            sizes = dict(
                zip(("width_min", "height_min", "width_max", "height_max"), map(int, [*low, *high]), strict=True)
            )
        areas = _boxes(dataset, {i: size for i, (size, _) in found.items()}, findings)
    elif dataset.kind == "text":
        lengths = [
            len(dataset.inputs[i]) for i in watch(range(len(dataset)), len(dataset), f"texts of {dataset.split}")
        ]
        if lengths:
            sizes = {"shortest": min(lengths), "median": int(np.median(lengths)), "longest": max(lengths)}
    _names(dataset, findings)
    counts = {name: int(n) for name, n in zip(dataset.classes, dataset.counts, strict=True)}
    missing = [name for name, n in counts.items() if n == 0]
    if dataset.masks is None:
        for name in missing:
            findings.odd(name, "class without samples in this split")
    return SplitFacts(
        len(dataset),
        counts if dataset.masks is None else {},
        int((dataset.labels < 0).sum()) if dataset.masks is None else 0,
        sizes,
        dict(modes.most_common()),
        areas,
        _mask_pixels(dataset, findings, watch),
        findings.report(),
    )


def _images(
    dataset: Dataset, decode: bool, findings: Findings, watch: Watch[Any]
) -> dict[int, tuple[tuple[int, int], str]]:
    """Size and mode of every image; unreadable ones are reported."""
    source: Any = dataset.inputs
    found = {}
    for i in watch(range(len(dataset)), len(dataset), f"images of {dataset.split}"):
        try:
            found[i] = source.header(i)
            if decode:
                source.open(i)
        except (UnreadableError, OSError):
            found.pop(i, None)
            findings.odd(dataset.ids[i], "image that cannot be decoded")
    usual = Counter(mode for _, mode in found.values()).most_common(1)
    kinds = {"L": "grayscale image", "CMYK": "CMYK image", "P": "palette image", "RGBA": "image with alpha"}
    for i, (_, mode) in found.items():
        if mode != "RGB" and (mode != "L" or usual[0][0] != "L"):
            findings.odd(dataset.ids[i], kinds.get(mode, f"image of mode {mode}"))
    return found


def _boxes(dataset: Dataset, sizes: dict[int, tuple[int, int]], findings: Findings) -> dict[str, Any]:
    """Counts and histograms of boxes, and the odd ones: tiny, full frame."""
    if (boxes := dataset.boxes) is None:
        return {}
    known = np.array([i for i in range(len(dataset)) if i in sizes], dtype=np.int64)
    seen = boxes.take(known)
    size = np.array([sizes[i] for i in known], dtype=np.float64).reshape(-1, 2)
    of_box = size[seen.owners]
    sides = seen.corners[:, 2:] - seen.corners[:, :2]
    names = [dataset.ids[i] for i in known]
    tiny = (sides > 0).all(1) & (sides <= TINY).any(1)
    start, rest = seen.corners[:, :2], of_box - seen.corners[:, 2:]
    # From the first pixel to the last, by any of the usual ways to count them: 0 to W - 2, W - 1 or W, or 1 to W.
    whole = ((start == 0) & (rest <= 2)) | ((start == 1) & (rest == 0))
    frame = whole.all(1) & (start[:, 0] == start[:, 1]) & (rest[:, 0] == rest[:, 1]) & (sides > 0).all(1)
    for flagged, what in ((tiny, f"box with a side of at most {TINY:g} pixels"), (frame, "box around the whole image")):
        for owner in seen.owners[flagged]:
            findings.odd(names[owner], what)
    inside = np.clip(seen.corners, 0.0, np.tile(of_box, 2))
    shares: Floats = union_area(inside[:, None]) / np.maximum(of_box.prod(1), 1e-300)
    filled = objectness(seen, None, size) if len(known) else np.zeros(0)
    per_image = Counter(int(n) for n in boxes.counts)
    return {
        "number": len(boxes.corners),
        "crowds": int(boxes.crowd.sum()),
        "without_area": int((boxes.areas == 0).sum()),
        "images_by_number": {str(n): per_image[n] for n in sorted(per_image)},
        "images_with_several": int((boxes.counts > 1).sum()),
        "images_with_several_classes": sum(
            len(set(boxes.labels[boxes.span(i)].tolist()) - {-1}) > 1 for i in range(len(boxes))
        ),
        "by_class": {
            name: int(n)
            for name, n in zip(
                dataset.classes,
                np.bincount(boxes.labels[boxes.labels >= 0], minlength=len(dataset.classes)),
                strict=True,
            )
        },
        "edges": EDGES.round(3).tolist(),
        "area_histogram": np.histogram(shares, EDGES)[0].tolist(),
        "objectness_histogram": np.histogram(filled, EDGES)[0].tolist(),
        "mean_objectness": float(filled.mean()) if len(filled) else 0.0,
    }


def _names(dataset: Dataset, findings: Findings) -> None:
    """Class names that differ only by case, spaces, '-' or '_'; readers of free names have said so already."""
    if any(finding.what == ALIKE for finding in dataset.report.odd):
        return
    spelt: dict[str, list[str]] = {}
    for name in dataset.classes:
        spelt.setdefault(name.casefold().translate({ord(c): None for c in " -_"}), []).append(name)
    for names in spelt.values():
        if len(names) > 1:
            findings.odd(" / ".join(names), ALIKE)


def _mask_pixels(dataset: Dataset, findings: Findings, watch: Watch[Any]) -> dict[str, float]:
    if dataset.masks is None:
        return {}
    counts = np.zeros(256, dtype=np.int64)
    for i in watch(range(len(dataset)), len(dataset), f"masks of {dataset.split}"):
        try:
            counts += np.bincount(np.asarray(dataset.masks[i], dtype=np.uint8).reshape(-1), minlength=256)
        except (ValueError, OSError):
            findings.odd(dataset.ids[i], "mask that cannot be read")
    total = max(1, int(counts.sum()))
    shares = {name: float(counts[k] / total) for k, name in enumerate(dataset.classes)}
    if dataset.ignore_index is not None:
        shares[NO_CLASS_PIXELS] = float(counts[dataset.ignore_index] / total)
    return shares


def _repeated_candidates(dataset: Dataset, watch: Watch[Any]) -> Iterator[tuple[str, int]]:
    """A digest of each image's or text's bytes, as they lie on disk where there are files."""
    source = dataset.inputs
    if dataset.kind == "array":  # equal rows of features say nothing
        return
    for i in watch(range(len(dataset)), len(dataset), f"copies in {dataset.split}"):
        try:
            if isinstance(source, (ImageFiles, TextFiles)):
                data = read_bytes(source.root / source.names[i])
            else:
                data = np.asarray(source[i]).tobytes()
        except (ValueError, OSError):
            continue
        yield hashlib.blake2b(data, digest_size=16).hexdigest(), i


def _report_copies(copies: list[tuple[str, str, int]], across: Findings) -> None:
    if len(copies) < 2:
        return
    # The same sample under the same id, as in a split that is part of another, is no copy.
    distinct = {identity: (split, label) for split, identity, label in copies}
    if len(distinct) < 2:
        return
    first, *others = sorted(distinct)
    names = " = ".join([first, *others[:2]]) + (f" = {len(others) - 2} more" if len(others) > 2 else "")
    labels = {label for _, label in distinct.values()}
    splits = {split for split, _ in distinct.values()}
    what = "identical samples with different labels" if len(labels) > 1 else "identical samples"
    across.odd(names, what + (" in different splits" if len(splits) > 1 else ""))
