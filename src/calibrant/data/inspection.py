"""Inspection of a data set: counts, balance, boxes, objectness and everything odd, for `calibrant data inspect`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.base.progress import Progress, silent, track
from calibrant.data.boxes import Floats, objectness, union_area
from calibrant.data.dataset import ALIKE, Dataset, Findings, Issue, Report, group_similar
from calibrant.data.files import UnreadableError, read_bytes
from calibrant.data.layouts import Layout
from calibrant.data.sources import ImageFiles, TextFiles

#: Boxes with a side of at most this many pixels are reported as tiny.
TINY = 2.0
#: The name of pixels without a class.
NO_CLASS_PIXELS = "(no class)"
#: Edges of the histograms of box area and objectness, as shares of the image.
EDGES = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True)
class SplitFacts:
    """The facts about one split; what a data set does not have is empty."""

    samples: int
    class_counts: dict[str, int]
    without_class: int  # samples that show none of the classes
    sizes: dict[str, int]  # smallest and largest width and height of images, or lengths of texts in characters
    modes: dict[str, int]  # images by colour mode
    boxes: dict[str, Any]  # number of boxes, images with 0, 1, 2, ... of them, histograms of area and objectness
    pixels: dict[str, float]  # share of each class, and of no class, among the pixels of masks
    report: Report

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        facts = {name: value for name, value in vars(self).items() if name != "report"}
        return facts | {"skipped": _plain(self.report.skipped), "odd": _plain(self.report.odd)}


@dataclass(frozen=True)
class Inspection:
    """The facts about a data set by split, and the copies across its splits."""

    layout: str
    root: str
    name: str
    splits: dict[str, SplitFacts]
    across: Report

    @property
    def samples(self) -> int:
        """Samples of all inspected splits."""
        return sum(facts.samples for facts in self.splits.values())

    @property
    def size(self) -> str:
        """Samples and splits in words."""
        samples = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        return f"{samples} in {len(self.splits)} split{'s' if len(self.splits) != 1 else ''}"

    @property
    def level(self) -> str:
        """``"good"``; ``"fair"`` if anything was skipped or is odd; ``"poor"`` if copies contradict or leak."""
        if any("different" in issue.what for issue in self.across.odd):
            return "poor"
        return "fair" if any(map(len, self._issues)) else "good"

    @property
    def _issues(self) -> tuple[list[Issue], list[Issue]]:
        """What was skipped and what is odd."""
        skipped = [issue for facts in self.splits.values() for issue in facts.report.skipped]
        odd = [issue for facts in self.splits.values() for issue in facts.report.odd]
        return skipped, [*odd, *self.across.odd]

    @property
    def headline(self) -> str:
        """The size of the data set, and whether all of it can be used, in one sentence."""
        skipped, odd = (sum(issue.times for issue in issues) for issues in self._issues)
        classes = {name for facts in self.splits.values() for name in facts.class_counts or facts.pixels}
        classes.discard(NO_CLASS_PIXELS)
        kinds = f", {len(classes)} class{'es' if len(classes) != 1 else ''}" if classes else ""
        if not skipped and not odd:
            return f"{self.size}{kinds}: nothing was skipped, and nothing is odd."
        findings = f"{odd} finding{'s are' if odd != 1 else ' is'} odd"
        if not skipped:
            return f"{self.size}{kinds}: nothing was skipped, and {findings}."
        return f"{self.size}{kinds}: {skipped} more {'were' if skipped != 1 else 'was'} skipped, and {findings}."

    @property
    def text(self) -> str:
        """How balanced the classes of the first split are, and how much of an image its objects fill."""
        split, facts = next(iter(self.splits.items()), ("", None))
        if facts is None:
            return ""
        counts, sentences = facts.class_counts.values(), []
        if counts:
            sentences.append(f"The smallest class of {split} has {min(counts)} samples, the largest {max(counts)}.")
        if facts.boxes.get("number"):
            boxes, share = facts.boxes["number"], facts.boxes["mean_objectness"]
            sentences.append(f"Its {boxes} boxes fill {share:.0%} of an image on average.")
        return " ".join(sentences)

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return {
            "level": self.level,
            "headline": self.headline,
            "text": self.text,
            "layout": self.layout,
            "root": self.root,
            "name": self.name,
            "samples": self.samples,
            "splits": {name: facts.to_json() for name, facts in self.splits.items()},
            "across_splits": _plain(self.across.odd),
        }


def _plain(issues: Iterable[Issue]) -> list[dict[str, Any]]:
    return [{"what": issue.what, "times": issue.times, "where": list(issue.where[:100])} for issue in issues]


def inspect(
    layout: Layout,
    root: Path,
    splits: Iterable[str],
    *,
    decode: bool = False,
    progress: Progress = silent,
    options: dict[str, Any] | None = None,
) -> tuple[Inspection, dict[str, Dataset]]:
    """Read splits of a data set (broken samples are skipped and listed) and inspect every sample.

    ``decode`` also decodes every image, to find broken ones whose header is fine; ``options`` are those of the reader.
    """
    datasets = {split: layout.open(root, split, "skip", options or {}) for split in splits}
    facts = {split: _facts(dataset, decode, progress) for split, dataset in datasets.items()}
    across = Findings("skip")
    contents: dict[str, list[tuple[str, str, int]]] = {}
    for split, dataset in datasets.items():
        for digest, index in _digests(dataset, progress):
            contents.setdefault(digest, []).append((split, dataset.ids[index], int(dataset.labels[index])))
    for copies in contents.values():
        _report_copies(copies, across)
    name = next(iter(datasets.values())).name if datasets else layout.name
    return Inspection(layout.name, str(root), name, facts, across.report()), datasets


def _track(dataset: Dataset, description: str, progress: Progress) -> Iterator[int]:
    return track(range(len(dataset)), f"{description} {dataset.split}", len(dataset), progress)


def _facts(dataset: Dataset, decode: bool, progress: Progress) -> SplitFacts:
    findings = Findings("skip")
    findings.add(dataset.report)
    sizes, modes, boxes = {}, Counter[str](), {}
    if dataset.kind == "image":
        headers = _headers(dataset, decode, findings, progress)
        modes = Counter(mode for _, mode in headers.values())
        if headers:
            dimensions = np.array([size for size, _ in headers.values()])
            ends = map(int, [*dimensions.min(0), *dimensions.max(0)])
            sizes = dict(zip(("width_min", "height_min", "width_max", "height_max"), ends, strict=True))
        boxes = _boxes(dataset, {i: size for i, (size, _) in headers.items()}, findings)
    elif dataset.kind == "text":
        lengths = [len(dataset.inputs[i]) for i in _track(dataset, "texts of", progress)]
        if lengths:
            sizes = {"shortest": min(lengths), "median": int(np.median(lengths)), "longest": max(lengths)}
    if not any(issue.what == ALIKE for issue in dataset.report.odd):  # else the reader has reported them
        for names in group_similar(dataset.classes):
            if len(names) > 1:
                findings.odd(" / ".join(names), ALIKE)
    counts, without_class = {}, 0
    if dataset.masks is None:
        counts = {name: int(n) for name, n in zip(dataset.classes, dataset.counts, strict=True)}
        without_class = int((dataset.labels < 0).sum())
        for name in (name for name, n in counts.items() if n == 0):
            findings.odd(name, "class without samples in this split")
    pixels = _mask_pixels(dataset, findings, progress)
    report = findings.report()
    return SplitFacts(len(dataset), counts, without_class, sizes, dict(modes.most_common()), boxes, pixels, report)


def _headers(
    dataset: Dataset, decode: bool, findings: Findings, progress: Progress
) -> dict[int, tuple[tuple[int, int], str]]:
    """Size and mode of every image; unreadable ones are reported."""
    source: Any = dataset.inputs
    headers = {}
    for i in _track(dataset, "images of", progress):
        try:
            header = source.header(i)
            if decode:
                source.open(i)
        except (UnreadableError, OSError):
            findings.odd(dataset.ids[i], "image that cannot be decoded")
        else:
            headers[i] = header
    usual = Counter(mode for _, mode in headers.values()).most_common(1)
    kinds = {"L": "grayscale image", "CMYK": "CMYK image", "P": "palette image", "RGBA": "image with alpha"}
    for i, (_, mode) in headers.items():
        if mode != "RGB" and (mode != "L" or usual[0][0] != "L"):
            findings.odd(dataset.ids[i], kinds.get(mode, f"image of mode {mode}"))
    return headers


def _boxes(dataset: Dataset, sizes: dict[int, tuple[int, int]], findings: Findings) -> dict[str, Any]:
    """Counts and histograms of boxes, and the odd ones: tiny, full frame."""
    if (boxes := dataset.boxes) is None:
        return {}
    rows = np.array([i for i in range(len(dataset)) if i in sizes], dtype=np.int64)
    readable = boxes.take(rows)
    size = np.array([sizes[i] for i in rows], dtype=np.float64).reshape(-1, 2)
    image_size = size[readable.owners]
    sides = readable.corners[:, 2:] - readable.corners[:, :2]
    tiny = (sides > 0).all(1) & (sides <= TINY).any(1)
    start, margin = readable.corners[:, :2], image_size - readable.corners[:, 2:]
    # From the first pixel to the last, by any of the usual conventions: 0 to W - 2, W - 1 or W, or 1 to W.
    spans = ((start == 0) & (margin <= 2)) | ((start == 1) & (margin == 0))
    frame = spans.all(1) & (start[:, 0] == start[:, 1]) & (margin[:, 0] == margin[:, 1]) & (sides > 0).all(1)
    tiny_box = f"box with a side of at most {TINY:g} pixels"
    for is_odd, finding in ((tiny, tiny_box), (frame, "box around the whole image")):
        for owner in readable.owners[is_odd]:
            findings.odd(dataset.ids[rows[owner]], finding)
    inside = np.clip(readable.corners, 0.0, np.tile(image_size, 2))
    areas: Floats = union_area(inside[:, None]) / np.maximum(image_size.prod(1), 1e-300)
    shares = objectness(readable, None, size) if len(rows) else np.zeros(0)
    per_image = Counter(int(n) for n in boxes.counts)
    per_class = np.bincount(boxes.labels[boxes.labels >= 0], minlength=len(dataset.classes))
    return {
        "number": len(boxes.corners),
        "crowds": int(boxes.crowd.sum()),
        "without_area": int((boxes.areas == 0).sum()),
        "images_by_number": {str(n): per_image[n] for n in sorted(per_image)},
        "images_with_several": int((boxes.counts > 1).sum()),
        "images_with_several_classes": sum(
            len(set(boxes.labels[boxes.span(i)].tolist()) - {-1}) > 1 for i in range(len(boxes))
        ),
        "by_class": {name: int(n) for name, n in zip(dataset.classes, per_class, strict=True)},
        "edges": EDGES.round(3).tolist(),
        "area_histogram": np.histogram(areas, EDGES)[0].tolist(),
        "objectness_histogram": np.histogram(shares, EDGES)[0].tolist(),
        "mean_objectness": float(shares.mean()) if len(shares) else 0.0,
    }


def _mask_pixels(dataset: Dataset, findings: Findings, progress: Progress) -> dict[str, float]:
    if dataset.masks is None:
        return {}
    counts = np.zeros(256, dtype=np.int64)
    for i in _track(dataset, "masks of", progress):
        try:
            counts += np.bincount(np.asarray(dataset.masks[i], dtype=np.uint8).reshape(-1), minlength=256)
        except (ValueError, OSError):
            findings.odd(dataset.ids[i], "mask that cannot be read")
    total = max(1, int(counts.sum()))
    shares = {name: float(counts[k] / total) for k, name in enumerate(dataset.classes)}
    if dataset.ignore_index is not None:
        shares[NO_CLASS_PIXELS] = float(counts[dataset.ignore_index] / total)
    return shares


def _digests(dataset: Dataset, progress: Progress) -> Iterator[tuple[str, int]]:
    """A hash of each image or text, of its file where there is one."""
    source = dataset.inputs
    if dataset.kind == "array":  # equal rows of features need not be copies
        return
    for i in _track(dataset, "copies in", progress):
        try:
            if isinstance(source, (ImageFiles, TextFiles)):
                data = read_bytes(source.path(i))
            else:
                data = np.asarray(source[i]).tobytes()
        except (ValueError, OSError):
            continue
        yield hashlib.blake2b(data, digest_size=16).hexdigest(), i


def _report_copies(copies: list[tuple[str, str, int]], across: Findings) -> None:
    # A sample with the same id, as in a split that is part of another, is not a copy.
    distinct = {identity: (split, label) for split, identity, label in copies}
    if len(distinct) < 2:
        return
    ids = sorted(distinct)
    names = " = ".join(ids[:3]) + (f" = {len(ids) - 3} more" if len(ids) > 3 else "")
    labels = {label for _, label in distinct.values()}
    splits = {split for split, _ in distinct.values()}
    finding = "identical samples with different labels" if len(labels) > 1 else "identical samples"
    across.odd(names, finding + (" in different splits" if len(splits) > 1 else ""))
