r"""Where the networks of several runs look (ALS, Fig. 6-8): class activation maps by Grad-CAM++ [Chattopadhyay2018].

    map = relu(sum_k w_k A_k)
    w_k = sum_ij alpha_kij relu(g_kij),   alpha_kij = g_kij^2 / (2 g_kij^2 + (sum_ab A_kab) g_kij^3)

The package grad-cam computes it; maps are scaled to 0..1 and to the size of the network's input.

    paper: A_k = activations of channel k of the last convolutional block; g = derivative of the class's logit by A
           (the paper's Y = exp(S) makes the derivatives powers of g); i, j, a, b = positions

Departures: the package adds 1e-6 to the denominator of alpha, and takes g itself, without the common factor exp(S).

A study shows images with their maps, and has a number: the mean share of a map inside the boxes of the objects, over
images drawn from the test set, with a bootstrap interval over images. Differences between runs are paired, on the same
images.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.base import torchvision_operators
from calibrant.base.arrays import Doubles
from calibrant.base.checks import did_you_mean
from calibrant.base.extras import need
from calibrant.base.progress import Progress, silent, track
from calibrant.data import Batches, Dataset, boxes_in_view, context_only, normalised
from calibrant.metrics import Interval, mean_interval
from calibrant.models import TIMM, describe
from calibrant.report import Cell, overlay_map
from calibrant.training import OpenedRun, RunFolder, evaluation_pipeline, open_run

Pixels = NDArray[np.uint8]
#: Of which class a map is: the one that the network predicts, or that of the label.
Explained = Literal["predicted", "label"]

#: Images at a time: the graph of a batch is kept for its gradients.
BATCH = 32
LEVEL = 0.95
#: Classes that are listed below a map.
TOP = 3


class MappedImage(NamedTuple):
    """An image as a network sees it, and where the network looks."""

    ident: str
    label: int
    pixels: Pixels  # [H, W, 3]
    heat: Doubles  # [H, W] from 0 to 1
    probabilities: Doubles  # [K]
    boxes: Doubles | None  # [B, 4] in pixels of the network's input; None if the objects' positions are unknown

    @property
    def inside(self) -> float:
        """The share of the map inside the boxes; NaN if there are none, or if the map is 0 everywhere."""
        return math.nan if self.boxes is None else mass_inside(self.heat, box_mask(self.boxes, self.heat.shape))

    @property
    def area(self) -> float:
        """The share of the image inside the boxes, which an even map would have there."""
        return math.nan if self.boxes is None else float(box_mask(self.boxes, self.heat.shape).mean())


def box_mask(boxes: Doubles, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Pixels [H, W] whose centre lies in any of the boxes [B, 4].

    Example:
        >>> box_mask(np.array([[0.6, 0.0, 2.0, 1.0]]), (2, 3)).astype(int).tolist()
        [[0, 1, 0], [0, 0, 0]]
    """
    y, x = (np.arange(size) + 0.5 for size in shape)
    x1, y1, x2, y2 = boxes.T[:, :, None]
    rows, columns = (y >= y1) & (y < y2), (x >= x1) & (x < x2)
    return (rows[:, :, None] & columns[:, None, :]).any(0)


def mass_inside(heat: Doubles, mask: NDArray[np.bool_]) -> float:
    """The share of a map's sum that lies inside a mask; NaN if the sum or the mask is empty."""
    total = float(heat.sum())
    return float(heat[mask].sum()) / total if total > 0 and mask.any() else math.nan


def check_network(folder: str | Path, layer: str | None = None) -> str:
    """The name of the layer that the maps of a run are made of; an error if its network has none."""
    need("calibrant cam", "cam", "pytorch_grad_cam")
    name = RunFolder(folder).recipe().model.name
    if name.startswith(TIMM) or ":" in name:
        if layer is None:
            raise ValueError(
                f"{folder}: the model {name!r} is not one of Calibrant's: name its last block with --layer"
            )
        return layer
    about = describe(name)
    if about.task != "classification" or not about.last_block:
        kind = "a network without convolutions" if about.task == "classification" else f"for {about.task}"
        raise ValueError(
            f"{folder}: class activation maps are of image classifiers with convolutions, and {name!r} is {kind}"
        )
    return about.last_block if layer is None else layer


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """The part of a network with a dotted name."""
    parts = dict(model.named_modules())
    if name not in parts or not name:
        raise ValueError(f"the network has no layer {name!r}{did_you_mean(name, [n for n in parts if n])}")
    return parts[name]


def map_images(
    run: OpenedRun, dataset: Dataset, layer: str, *, explained: Explained = "predicted", progress: Progress = silent
) -> Iterator[MappedImage]:
    """Every image of a data set as a run's network sees it, with the map of a layer, given by its dotted name."""
    pipeline = evaluation_pipeline(run.recipe, dataset)
    mean, std = run.recipe.data.normalisation
    dtype = next(p.dtype for p in run.model.parameters() if p.is_floating_point())
    part = find_layer(run.model, layer)
    loader = pipeline.loader(Batches(len(pipeline), BATCH, shuffle=False))
    for number, batch in enumerate(track(loader, "maps", len(loader), progress)):
        inputs = normalised(batch.inputs.to(run.device), mean, std, dtype)
        if number == 0:
            _check_layer(run.model, part, layer, inputs[:1])
        heat, logits = activation_maps(run.model, part, inputs, batch.labels if explained == "label" else None)
        probabilities = torch.softmax(logits.double(), 1).cpu().numpy()
        pictures = batch.inputs.permute(0, 2, 3, 1).numpy()
        for i, index in enumerate(batch.indices.tolist()):
            picture = np.repeat(pictures[i], 3, 2) if pictures.shape[3] == 1 else pictures[i]
            corners = None if batch.boxes is None else batch.boxes[i]
            boxes = None if corners is None or not len(corners) else boxes_in_view(corners, batch.views[i])
            yield MappedImage(
                pipeline.dataset.ids[index], int(batch.labels[i]), picture, heat[i], probabilities[i], boxes
            )


def activation_maps(
    model: nn.Module, layer: nn.Module, inputs: Tensor, classes: Sequence[int] | Tensor | None = None
) -> tuple[Doubles, Tensor]:
    """Grad-CAM++ maps [N, H, W] from 0 to 1, and the logits [N, K].

    Args:
        model: A classifier, in evaluation mode afterwards.
        layer: A layer of the model, with activations [N, C, h, w].
        inputs: [N, channels, H, W].
        classes: The class whose map is drawn, for each input; the predicted one if left out.
    """
    need("class activation maps", "cam", "pytorch_grad_cam")
    torchvision_operators.ensure()  # the package imports it
    from pytorch_grad_cam import GradCAMPlusPlus
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    targets = None if classes is None else [ClassifierOutputTarget(int(k)) for k in classes]
    with torch.enable_grad(), GradCAMPlusPlus(model, [layer]) as method:
        maps: Any = method(inputs, targets)
        logits = method.outputs.detach()
    model.zero_grad(set_to_none=True)
    return np.asarray(maps, np.float64), logits


def _check_layer(model: nn.Module, part: nn.Module, name: str, inputs: Tensor) -> None:
    """Raise unless a layer gives features over a grid of positions."""
    outputs: list[Any] = []
    handle = part.register_forward_hook(lambda module, arguments, output: outputs.append(output))
    try:
        with torch.no_grad():
            model.eval()(inputs)
    finally:
        handle.remove()
    shapes = [list(output.shape) if isinstance(output, Tensor) else [] for output in outputs]
    if not shapes or len(shapes[-1]) != 4 or math.prod(shapes[-1][2:]) < 2:
        words = f"gives {shapes[-1]}" if shapes else "is not used"
        raise ValueError(f"layer {name!r} must give features [N, C, h, w] of several positions, and it {words}")


def mean_of_known(values: Doubles) -> Interval:
    """The mean of the values that are known, over images, with its bootstrap interval."""
    return mean_interval(values[np.isfinite(values)], level=LEVEL)


@dataclass(frozen=True)
class ChosenImages:
    """Which images are shown and which are measured."""

    ids: Sequence[str] = ()  # shown, by name; if empty, ``count`` of them
    count: int = 6
    seed: int | None = None  # of the draw; without one the first ``count`` are shown
    measured: int = 500  # how many the number is computed on, drawn from all
    with_context: bool = True  # also show each with its objects covered, where the data have boxes

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
    """What was drawn and measured."""

    document: dict[str, Any]  # every number, as JSON has it
    pictures: list[list[Cell]]  # for each row of the document the picture, and the map of each run over it
    shares: dict[str, Doubles]  # for each run the share of each measured map inside the boxes, NaN without a map


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

    Runs are given by the names of their columns, data, split, accelerator and trust as for `predict_run`. Maps are of
    the last convolutional block of each network unless a layer is named; progress is called after every batch.
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
            rows.append({
                "id": ident, "label": first.classes[image.label], "context": is_covered,
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
            "inside": vars(mean_of_known(part.inside)),
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
    return {"images": int(np.isfinite(change).sum()), **vars(mean_of_known(change))}
