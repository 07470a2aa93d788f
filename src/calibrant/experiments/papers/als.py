"""Tables and figures of ALS: labels as soft as the object is small."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.auditing import confidence_by_objectness
from calibrant.experiments.papers import als_detection, als_maps
from calibrant.experiments.papers.recipe_items import tables_beside
from calibrant.experiments.papers.registry import Output, item
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import Column, Line, Table, cell_of
from calibrant.metrics import objectness_deviation, top_label
from calibrant.report import draw_confidence_by_objectness, draw_peaks, new_figure
from calibrant.training import load, load_sets

_RECIPE = "als_imagenet"
_DETECTION = als_detection.RECIPE
#: The shares of the image that the objects of the pictures in Fig. 3 cover, as near as the test images have them.
_SIZES = (0.15, 0.4, 0.7)
_BINS = 10


@item("als.fig3", "Confidence follows the size of the object", recipes=(_RECIPE,), minutes=1)
def confidence_and_size(bench: Workbench) -> Output:
    """Mean confidence in bins of objectness, by the methods of Table 1, and what they say of three images."""
    runs = bench.run(_RECIPE, load(_RECIPE).tables["1"].rows)
    parts, lines, notes = {}, [], []
    for method in runs.folders:
        seeds = [_of_seed(runs, method, seed) for seed in runs.folders[method]]
        confidence, objectness = (np.concatenate(column) for column in zip(*seeds, strict=True))
        part = parts[runs.label(method)] = confidence_by_objectness(confidence, objectness, bins=_BINS)
        slopes = [np.polyfit(sizes, sure, 1)[0] for sure, sizes in seeds]
        deviations = [objectness_deviation(sure, sizes) for sure, sizes in seeds]
        lines.append(Line(runs.label(method), "", (cell_of(deviations), cell_of(slopes))))
        low, high = (int(at) for at in np.flatnonzero(part["count"])[[0, -1]])
        notes.append(
            f"{runs.label(method)}: mean confidence is {part['confidence'][low]:.2f} where objects cover "
            f"{100 * part['objectness'][low]:.0f}% of the image, and {part['confidence'][high]:.2f} where they cover "
            f"{100 * part['objectness'][high]:.0f}%; the fitted line rises by {np.mean(slopes):+.2f} from no object "
            "to a whole image of it."
        )
    figure = new_figure((4.2, 3.4))
    draw_confidence_by_objectness(figure.subplots(), parts)
    columns = (
        Column("objectness_deviation"),
        Column("", title="Slope of confidence over object size", direction="none"),
    )
    table = Table("Confidence and the size of the object", _behind(lines), columns, tuple(lines))
    notes.append("ALS, section 4.2, prints an objectness deviation of 0.24 for adaptive and 0.42 for hard labels.")
    return Output({"fig3-numbers": table}, {"fig3": figure, "fig3-images": _images(bench, runs)}, tuple(notes))


def _of_seed(runs: RunSet, method: str, seed: int) -> tuple[Any, Any]:
    """Confidence, and the share that the object covers, of the test images."""
    predictions = runs.predictions(method, seed)
    if predictions.objectness is None:
        raise ValueError(f"{runs.folder(method, seed).path}: its test predictions do not say how large objects are")
    confidence = top_label(np.asarray(predictions.logits), np.asarray(predictions.labels))[0]
    return confidence, np.asarray(predictions.objectness, np.float64)


def _behind(lines: list[Line]) -> str:
    runs = max(cell.runs for line in lines for cell in line.cells if cell is not None)
    return "One run each." if runs == 1 else f"Mean ± standard deviation over {runs} seeds."


def _images(bench: Workbench, runs: RunSet) -> Any:
    """Images with a small, a middling and a large object, and what each method says of them."""
    methods = list(runs.folders)
    seed = min(runs.folders[methods[0]])
    first = runs.predictions(methods[0], seed)
    test = load_sets(runs.folder(methods[0], seed).recipe(), None if bench.small else bench.data).test
    numbers = {ident: number for number, ident in enumerate(test.ids)}
    probabilities = {runs.label(m): _softmax(np.asarray(runs.predictions(m, seed).logits)) for m in methods}
    right = np.all([row.argmax(1) == np.asarray(first.labels) for row in probabilities.values()], axis=0)
    candidates = np.flatnonzero(right) if right.any() else np.arange(len(right))
    sizes = np.asarray(first.objectness, np.float64)
    figure = new_figure((1.75 * (1 + len(methods)), 1.5 * len(_SIZES)))
    grid = figure.subplots(len(_SIZES), 1 + len(methods), squeeze=False)
    for axes, size in zip(grid, _SIZES, strict=True):
        at = int(candidates[np.abs(sizes[candidates] - size).argmin()])
        image = np.asarray(test.inputs[numbers[first.ids[at]] if first.ids is not None else at])
        draw_peaks(
            axes,
            image,
            {name: row[at].tolist() for name, row in probabilities.items()},
            f"object: {100 * sizes[at]:.0f}%",
        )
    return figure


def _softmax(logits: Any) -> Any:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


@item("als.fig6", "Where networks look, with and without the objects", recipes=(_RECIPE,), minutes=5)
def fig6(bench: Workbench) -> Output:
    """Activation maps of images, and of the same with every object covered."""
    return als_maps.draw_maps(bench, _RECIPE, "fig6", with_context=True)


@item("als.fig7", "Where networks look, and what they say", recipes=(_RECIPE,), minutes=5)
def fig7(bench: Workbench) -> Output:
    """Activation maps of images as they are."""
    return als_maps.draw_maps(bench, _RECIPE, "fig7", with_context=False)


@item("als.fig8", "Where networks look: more images", recipes=(_RECIPE,), minutes=5)
def fig8(bench: Workbench) -> Output:
    """As Fig. 7, of other images."""
    return als_maps.draw_maps(bench, _RECIPE, "fig8", with_context=False)


@item("als.table1", "Confidence on images without their objects", recipes=(_RECIPE,), minutes=1)
def table1(bench: Workbench) -> Output:
    """Accuracy and confidence where every object is covered."""
    note = (
        "No object is visible in these images: as in the paper, the best is the least sure, the least often right by "
        "context alone, and the most underconfident."
    )
    directions = {"accuracy": "low", "mean_confidence": "low", "overconfidence": "low", "underconfidence": "high"}
    return tables_beside(bench, (_RECIPE,), "1", directions=directions, notes=(note,))


@item("als.table2", "ImageNet and V2, ResNet-50, beta from 0 to 1", recipes=(_RECIPE,), minutes=1.5)
def table2(bench: Workbench) -> Output:
    """In small, images of textures never seen stand for ImageNetV2."""
    return tables_beside(bench, (_RECIPE,), "2", notes=_stand_in(bench))


@item("als.table3", "ImageNet and V2, ResNet-101", recipes=(_RECIPE,), minutes=0.5)
def table3(bench: Workbench) -> Output:
    """As Table 2; in small the network is the same small one."""
    return tables_beside(bench, (_RECIPE,), "3", notes=_stand_in(bench))


@item("als.table4", "Detectors on COCO, by the classifier they start from", recipes=(_DETECTION,), minutes=12)
def table4(bench: Workbench) -> Output:
    """In small, detectors of drawn shapes."""
    return als_detection.detection_table(bench, "4")


@item("als.table5", "Every method on ImageNet and V2", recipes=(_RECIPE,), minutes=2)
def table5(bench: Workbench) -> Output:
    """In small, methods that differ only in the training set are one row."""
    return tables_beside(bench, (_RECIPE,), "5", notes=_stand_in(bench))


@item("als.table6", "OpenImages", recipes=("als_open_images",), minutes=1)
def table6(bench: Workbench) -> Output:
    """In small on scenes."""
    return tables_beside(bench, ("als_open_images",), "6")


@item("als.table7", "Detectors on COCO, by training set and size of object", recipes=(_DETECTION,), minutes=8)
def table7(bench: Workbench) -> Output:
    """In small, methods that differ only in the training set are one row, and there are no large objects."""
    return als_detection.detection_table(bench, "7")


def _stand_in(bench: Workbench) -> tuple[str, ...]:
    """What stands for the second validation set."""
    if not bench.small:
        return ()
    return ("In small, the set texture stands for ImageNetV2: the same objects in colours and patterns never seen.",)
