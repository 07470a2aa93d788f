"""Where the networks of several runs look (ALS, Fig. 6-8): images with maps, and a number.

The number is the mean share of a map inside the boxes of the objects, over images drawn from the test set, with a
bootstrap interval over images; differences between runs are paired, on the same images.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._arrays import Doubles
from calibrant._progress import Progress, silent
from calibrant._validation import did_you_mean
from calibrant.data import Dataset, context_only
from calibrant.experiments.maps.activation_maps import Explained, MappedImage, check_network, map_images
from calibrant.metrics import mean_interval
from calibrant.report import Cell, overlay_map
from calibrant.training import OpenedRun, open_run

LEVEL = 0.95
#: Classes that are listed below a map.
TOP = 3


@dataclass(frozen=True)
class ChosenImages:
    """Which images are shown and which are measured.

    Attributes:
        ids: Shown, by name; if empty, ``count`` of them.
        count: How many are shown.
        seed: Seed of the draw; without one the first ``count`` are shown.
        measured: How many the number is computed on, drawn from all.
        with_context: Also show each with its objects covered, where the data have boxes.
    """

    ids: Sequence[str] = ()
    count: int = 6
    seed: int | None = None
    measured: int = 500
    with_context: bool = True

    def select_shown(self, dataset: Dataset) -> list[str]:
        """The images that are shown, by name."""
        if self.ids:
            present = set(dataset.ids)
            for ident in self.ids:
                if ident not in present:
                    raise ValueError(f"{dataset.title} has no image {ident[:80]!r}{did_you_mean(ident, dataset.ids)}")
            return list(dict.fromkeys(self.ids))
        labelled = np.flatnonzero(dataset.labels >= 0)
        number = min(self.count, len(labelled))
        if self.seed is not None:
            labelled = np.sort(np.random.default_rng(self.seed).choice(labelled, number, replace=False))
        return [dataset.ids[i] for i in labelled[:number]]

    def select_measured(self, dataset: Dataset) -> list[str]:
        """The images that are measured, by name: of those with a class and with boxes."""
        if dataset.boxes is None:
            return []
        rows = np.flatnonzero((dataset.labels >= 0) & (dataset.boxes.counts > 0))
        drawn_rows = np.random.default_rng(self.seed or 0).choice(rows, min(self.measured, len(rows)), replace=False)
        return [dataset.ids[i] for i in np.sort(drawn_rows)]


@dataclass(frozen=True)
class ActivationStudy:
    """What was drawn and measured.

    Attributes:
        document: Every number, as JSON has it.
        pictures: For each row of the document the picture, and the map of each run over it.
        shares: For each run the share of each measured map inside the boxes, NaN where there is no map.
    """

    document: dict[str, Any]
    pictures: list[list[Cell]]
    shares: dict[str, Doubles]


class _RunMaps:
    """The maps of one run: of the shown images, of their context-only versions, and the shares of the measured ones."""

    def __init__(self, run: OpenedRun, layer: str, images: ChosenImages, explained: Explained, progress: Progress):
        dataset = run.dataset
        if dataset.kind != "image":
            raise ValueError(
                f"{dataset.title}: class activation maps are of images, and its samples are {dataset.kind}s"
            )
        self.layer, self.model, self.classes = layer, run.recipe.model.name, dataset.classes
        self.has_boxes = dataset.boxes is not None and bool(dataset.boxes.counts.any())
        self.shown_ids, self.measured_ids = images.select_shown(dataset), images.select_measured(dataset)
        self.shown = self._maps(run, dataset, self.shown_ids, explained)
        self.covered: dict[str, MappedImage] = {}
        if images.with_context and dataset.boxes is not None and dataset.context is None:
            context = context_only(dataset)
            present = set(context.ids)
            ids = [ident for ident in self.shown_ids if ident in present]
            self.covered = self._maps(run, context, ids, explained)
        counted = _rows(dataset, self.measured_ids)
        mapped = map_images(run, counted, layer, explained=explained, progress=progress) if len(counted) else ()
        numbers = [(image.inside, image.area) for image in mapped]
        self.inside, self.area = np.array(numbers, np.float64).reshape(-1, 2).T

    def _maps(
        self, run: OpenedRun, dataset: Dataset, ids: Sequence[str], explained: Explained
    ) -> dict[str, MappedImage]:
        if not ids:
            return {}
        rows = _rows(dataset, ids)
        if (rows.labels < 0).any():
            raise ValueError(f"{dataset.title}: the image {rows.ids[int((rows.labels < 0).argmax())]!r} has no class")
        return {image.ident: image for image in map_images(run, rows, self.layer, explained=explained)}


def _rows(dataset: Dataset, ids: Sequence[str]) -> Dataset:
    numbers = {ident: number for number, ident in enumerate(dataset.ids)}
    return dataset.take(np.array([numbers[ident] for ident in ids], np.int64))


def study_activation_maps(
    runs: Mapping[str, str | Path],
    images: ChosenImages,
    *,
    data: str | None = None,
    split: str | None = None,
    layer: str | None = None,
    explained: Explained = "predicted",
    accelerator: str = "auto",
    trust_code: bool = False,
    progress: Progress = silent,
) -> ActivationStudy:
    """Draw and measure the class activation maps of several runs on the same images.

    Args:
        runs: Folders of finished runs, by the name of their column.
        images: The images to show and to measure.
        data: Folder of the data, if not the recipes'.
        split: The set of the runs, as for `predict_run`; the test set if left out.
        layer: The layer whose maps are drawn; if left out, the last convolutional block of each network.
        explained: The class whose maps they are.
        accelerator: As in Lightning Fabric.
        trust_code: As for `predict_run`.
        progress: Called after every batch of measured images.
    """
    layers = {name: check_network(folder, layer) for name, folder in runs.items()}
    parts: dict[str, _RunMaps] = {}
    run: OpenedRun | None = None
    for name, folder in runs.items():
        run = open_run(folder, data=data, split=split, accelerator=accelerator, trust_code=trust_code, after=run)
        parts[name] = _RunMaps(run, layers[name], images, explained, progress)
        _check_alike(parts, name)
    rows, pictures = _shown_rows(parts)
    document = {
        "format": "calibrant.cam", "version": 1, "set": split or "test", "explained": explained, "level": LEVEL,
        **_numbers(parts), "rows": rows,
    }  # fmt: skip
    return ActivationStudy(document, pictures, {name: part.inside for name, part in parts.items()})


def _check_alike(parts: Mapping[str, _RunMaps], name: str) -> None:
    """Raise if a run has other images or classes than the first: their maps cannot be compared."""
    first, current = next(iter(parts.values())), parts[name]
    if first.classes != current.classes:
        raise ValueError(f"{name} and {next(iter(parts))} were trained for different classes")
    if (first.shown_ids, first.measured_ids) != (current.shown_ids, current.measured_ids):
        raise ValueError(f"{name} and {next(iter(parts))} have different images in this set")


def _shown_rows(parts: Mapping[str, _RunMaps]) -> tuple[list[dict[str, Any]], list[list[Cell]]]:
    """What is said of every row, and its pictures; a context-only version follows its image."""
    first = next(iter(parts.values()))
    rows, pictures = [], []
    for ident in first.shown_ids:
        for is_covered in (False, True):
            images = {name: (part.covered if is_covered else part.shown).get(ident) for name, part in parts.items()}
            mapped = {name: image for name, image in images.items() if image is not None}
            if not mapped:
                continue
            boxes = first.shown[ident].boxes
            image = next(iter(mapped.values()))
            label = first.classes[image.label]
            rows.append({
                "id": ident, "label": label, "context": is_covered,
                "methods": [_cell(name, image, first.classes) for name, image in mapped.items()],
            })  # fmt: skip
            cells = [Cell(image.pixels, "", boxes)]
            cells += [Cell(overlay_map(m.pixels, m.heat), "", parts[n].shown[ident].boxes) for n, m in mapped.items()]
            pictures.append(cells)
    return rows, pictures


def _cell(name: str, image: MappedImage, classes: Sequence[str]) -> dict[str, Any]:
    order = np.argsort(-image.probabilities, kind="stable")[:TOP]
    top = [
        {"class": classes[k], "confidence": float(image.probabilities[k]), "right": bool(k == image.label)}
        for k in order
    ]
    return {"name": name, "top": top, "inside": image.inside}


def _numbers(parts: Mapping[str, _RunMaps]) -> dict[str, Any]:
    """The share of the maps inside the boxes, of every run and of every pair of runs."""
    first = next(iter(parts.values()))
    methods = [
        {
            "name": name, "model": part.model, "layer": part.layer, "images": int(np.isfinite(part.inside).sum()),
            "inside": vars(mean_interval(part.inside[np.isfinite(part.inside)], level=LEVEL)),
        }
        for name, part in parts.items()
    ]  # fmt: skip
    differences = [
        {"first": a, "second": b, **paired_change(parts[a].inside, parts[b].inside)}
        for a, b in itertools.combinations(parts, 2)
    ]
    area = float(np.mean(first.area)) if len(first.area) else None
    return {
        "has_boxes": first.has_boxes, "measured": len(first.measured_ids), "area": area, "methods": methods,
        "differences": differences,
    }  # fmt: skip


def paired_change(first: Doubles, second: Doubles) -> dict[str, Any]:
    """The mean change from one column to another over the samples that have both, with its interval."""
    change = second - first
    change = change[np.isfinite(change)]
    return {"images": len(change), **vars(mean_interval(change, level=LEVEL))}
