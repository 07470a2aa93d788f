"""Figures of images: maps of one by several methods, class activation maps, confidence against object size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from calibrant.report.document import Part
from calibrant.report.figures import (
    BASE,
    DASHES,
    INK,
    SERIES,
    WRONG,
    in_style,
    literal,
    new_figure,
    set_title,
    shares,
    wrapped,
)
from calibrant.report.figures.data import Cell
from calibrant.report.maps import ImageMaps, MethodMaps
from calibrant.report.text import percent

MapRow = Literal["prediction", "confidence", "rank", "normalised_rank", "reliability"]
#: What stands left of a row.
_WORDS = {
    "prediction": "prediction",
    "confidence": "confidence",
    "rank": "wrong pixels",
    "normalised_rank": "wrong pixels,\nnormalised logits",
    "reliability": "accuracy",
}
#: Green and red that can be read on white; a mark says the same.
_VERDICTS = {True: ("#00694c", "\u2713"), False: ("#a83c00", "\u2717")}
#: How much of the picture is seen where a map is 0, and where it is 1.
_PICTURE = (0.75, 0.3)


def draw_maps(maps: ImageMaps, rows: Sequence[MapRow]) -> Figure:
    """Draw the picture above its truth in the first column, and a column of maps for each method.

    Args:
        maps: The image, and what methods say of it.
        rows: What is drawn of a method, from the top.
    """
    height, width = maps.picture.shape[:2]
    tall = 2.2 * height / width + 0.35
    number = max(2, len(rows))
    figure = new_figure((2.35 * (len(maps.methods) + 1), tall * number))
    axes = figure.subplots(number, len(maps.methods) + 1, squeeze=False)
    for axis in axes.ravel():
        axis.axis("off")
    for axis, pixels, title in zip(axes[:, 0], (maps.picture, maps.truth_map()), ("picture", "truth"), strict=False):
        _show(axis, pixels, title)
    for k, method in enumerate(maps.methods, start=1):
        painted = maps.maps_of(method)
        for axis, row in zip(axes[:, k], rows, strict=False):
            if row == "reliability":
                _draw_reliability(axis, method)
            else:
                _show(axis, painted[row], f"{method.name}: {_WORDS[row]}")
    return figure


def _show(axis: Axes, pixels: np.ndarray, title: str) -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set_title(title, loc="left", fontsize=7)


def _draw_reliability(axis: Axes, method: MethodMaps) -> None:
    """Accuracy in bins of confidence, against the diagonal."""
    axis.axis("on")
    low, high, accuracy = (
        np.array([np.nan if v is None else v for v in method.reliability[key]], np.float64)
        for key in ("low", "high", "accuracy")
    )
    filled = ~np.isnan(accuracy)
    widths = (high - low)[filled]
    axis.bar(low[filled], accuracy[filled], widths, align="edge", color=BASE, edgecolor="white", linewidth=0.4)
    # A bin that is never right has a bar without height: the point shows that it is there.
    axis.plot(low[filled] + widths / 2, accuracy[filled], "o", color=INK, markersize=2, clip_on=False)
    axis.plot([0, 1], [0, 1], color=WRONG, linewidth=0.9, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 1), yticks=(0, 1))
    axis.tick_params(labelsize=6, colors=INK)
    axis.set_title(f"{method.name}: ECE {100 * method.numbers['ece']:.2f}%", loc="left", fontsize=7)


def overlay_map(pixels: npt.NDArray[np.uint8], heat: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """A picture [H, W, 3] in grey under its map [H, W] in colour: dark where the map is 0, yellow where it is 1."""
    grey = (pixels @ np.array([0.299, 0.587, 0.114]))[..., None] / 255
    share = _PICTURE[0] + (_PICTURE[1] - _PICTURE[0]) * heat[..., None]
    colours = np.asarray(colormaps["inferno"](heat))[..., :3]
    blend: npt.NDArray[np.uint8] = np.rint(255 * (share * grey + (1 - share) * colours)).astype(np.uint8)
    return blend


def draw_activation_maps(document: Part, pictures: Sequence[Sequence[Cell]]) -> Figure:
    """Draw a row for each image: the picture with its boxes, and the map of each network with its most likely classes.

    Args:
        document: The maps' document: ``methods`` and ``rows``.
        pictures: For each row the picture, and the map of each network over it.
    """
    methods = [method["name"] for method in document["methods"]]
    with in_style():
        figure = new_figure((1.45 * (1 + len(methods)), 1.95 * len(pictures)))
        grid = figure.subplots(len(pictures), 1 + len(methods), squeeze=False)
        for number, (axes, row, cells) in enumerate(zip(grid, document["rows"], pictures, strict=True)):
            for axis, cell in zip(axes, cells, strict=True):
                _draw_picture(axis, cell)
            axes[0].set_xlabel(f"{literal(row['label'])}\n{'objects covered' if row['context'] else ''}", fontsize=7)
            for axis, method in zip(axes[1:], row["methods"], strict=True):
                _write_classes(axis, method["top"])
            if number == 0:
                for axis, name in zip(axes, ("Picture", *methods), strict=True):
                    axis.set_title(wrapped(name, 18), fontsize=7.5)
    return figure


def _draw_picture(axis: Axes, cell: Cell) -> None:
    axis.imshow(cell.pixels, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    for x1, y1, x2, y2 in cell.boxes if cell.boxes is not None else ():
        frame = (x1 - 0.5, y1 - 0.5), x2 - x1, y2 - y1
        axis.add_patch(Rectangle(*frame, fill=False, edgecolor="white", linewidth=1.2, linestyle=(0, (3, 2))))


def _write_classes(axis: Axes, top: Sequence[Part]) -> None:
    """The most likely classes below a map, a line each."""
    for line, entry in enumerate(top):
        colour, mark = _VERDICTS[entry["right"]]
        axis.annotate(
            f"{mark} {literal(entry['class'])} {percent(entry['confidence'])}",
            (0, 0), (0, -8 - 9 * line), xycoords="axes fraction", textcoords="offset points", va="center",
            fontsize=6.5, color=colour, annotation_clip=False,
        )  # fmt: skip


def draw_confidence_by_objectness(axis: Axes, parts: Mapping[str, Part], *, title: str | None = None) -> None:
    """Draw mean confidence in bins of objectness, one line for each model, and the line where both are equal.

    Args:
        axis: To draw on.
        parts: By the model's name: ``"objectness"`` and ``"confidence"``, the means of each bin, and ``"count"``.
        title: Written above.
    """
    for k, (name, part) in enumerate(parts.items()):
        filled = np.asarray(part["count"]) > 0
        x, y = (np.asarray(part[key], np.float64)[filled] for key in ("objectness", "confidence"))
        axis.plot(x, y, DASHES[k % 4], color=SERIES[k % 7], marker="o", markersize=3, label=literal(name))
    axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":", label="confidence = object size")
    shares(axis, x=(0, 1), y=(0, 1))
    axis.set_xlabel("share of the image that the object covers")
    axis.set_ylabel("mean confidence")
    axis.legend(fontsize=7, frameon=False)
    set_title(axis, title)


def draw_peaks(axes: Sequence[Axes], image: ArrayLike, rows: Mapping[str, Sequence[float]], words: str) -> None:
    """Draw an image, and beside it the probabilities that each model gives, as bars, with the largest in numbers.

    Args:
        axes: One for the image and one for each model.
        image: As matplotlib's ``imshow`` takes it.
        rows: Probabilities by the model's name.
        words: Above the image.
    """
    axes[0].imshow(np.asarray(image))
    axes[0].set_axis_off()
    axes[0].set_title(literal(words), fontsize=7, loc="left")
    for k, (axis, (name, probabilities)) in enumerate(zip(axes[1:], rows.items(), strict=True)):
        axis.bar(np.arange(len(probabilities)), probabilities, 0.8, color=SERIES[k % 7])
        axis.set_ylim(0, 1)
        axis.set_xticks([])
        axis.set_yticks([0, 1])
        axis.tick_params(labelsize=6, length=2)
        axis.set_title(wrapped(f"{name}: {max(probabilities):.2f}", 20), fontsize=6.5, loc="left")
