"""Figures of images: contact sheets, the histograms of a data set, maps by several methods, class activation maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle

from calibrant.base.arrays import Doubles
from calibrant.report.document import Part
from calibrant.report.figures import (
    BASE,
    INK,
    MUTED,
    SERIES,
    WRONG,
    figure_path,
    in_style,
    known_values,
    literal,
    new_axes,
    new_figure,
    save_figure,
    wrapped,
)
from calibrant.report.html.maps_page import ImageMaps, MethodMaps, Pixels
from calibrant.report.text import percent

#: Bars that are drawn one by one; beyond that classes become a line.
_NAMED_CLASSES = 24
#: Characters of a name that are drawn: the figure has to have room for the bars.
_LONGEST = 40

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


@dataclass(frozen=True)
class Cell:
    """One picture of a contact sheet.

    Attributes:
        pixels: [H, W, 3] uint8.
        caption: A few short lines.
        boxes: [B, 4] in pixels of the picture.
        box_names: Names of the boxes' classes.
        crop: x1, y1, x2, y2: drawn dashed.
    """

    pixels: Pixels
    caption: str
    boxes: Doubles | None = None
    box_names: Sequence[str] = ()
    crop: tuple[float, float, float, float] | None = None


def draw_contact_sheet(path: str | Path, cells: Sequence[Cell], **settings: Any) -> None:
    """Draw pictures on one sheet and write it as ``.png``, ``.svg`` or ``.pdf``, with what `contact_sheet` takes."""
    path = figure_path(path)
    save_figure(contact_sheet(cells, **settings), path)


def contact_sheet(
    cells: Sequence[Cell],
    *,
    title: str = "",
    columns: int = 6,
    legend: Mapping[str, tuple[float, float, float]] | None = None,
) -> Figure:
    """Pictures with their boxes, crops and captions on one sheet; each box has its class written at it.

    Args:
        cells: What to draw, in rows.
        title: Written above.
        columns: Pictures in a row.
        legend: What colours stand for (the classes of masks), each red, green, blue in 0..1; written below.
    """
    if not cells:
        raise ValueError("a contact sheet needs at least one picture")
    columns = min(columns, len(cells))
    rows = -(-len(cells) // columns)
    names = sorted({name for cell in cells for name in cell.box_names})
    colours = {name: SERIES[i % (len(SERIES) - 1)] for i, name in enumerate(names)}
    lines = max(cell.caption.count("\n") + 1 for cell in cells)
    with in_style():
        tall = float(np.median([cell.pixels.shape[0] / cell.pixels.shape[1] for cell in cells]))
        height = 2.0 * min(max(tall, 0.4), 2.0) + 0.17 * lines
        below = 0.25 * -(-len(legend or ()) // columns)
        figure = Figure(
            figsize=(2.1 * columns, (height + 0.16) * rows + below + (0.4 if title else 0.1)),
            layout=ConstrainedLayoutEngine(h_pad=0.08),
        )
        if title:
            figure.suptitle(_literal(title), fontsize=10)
        for axis in (axes := np.ravel(figure.subplots(rows, columns, squeeze=False))):
            axis.set_axis_off()
        for axis, cell in zip(axes, cells, strict=False):
            _picture(axis, cell, colours)
        if legend:
            patches = [Patch(color=colour, label=_cut(name)) for name, colour in legend.items()]
            figure.legend(handles=patches, loc="outside lower center", ncols=columns, frameon=False, fontsize=7)
    return figure


def _picture(axis: Axes, cell: Cell, colours: Mapping[str, str]) -> None:
    height, width = cell.pixels.shape[:2]
    axis.imshow(cell.pixels, interpolation="nearest" if max(height, width) < 100 else "antialiased")
    for k, box in enumerate(cell.boxes if cell.boxes is not None else ()):
        colour = colours.get(cell.box_names[k], MUTED) if k < len(cell.box_names) else MUTED
        _frame(axis, box, edgecolor=colour, linewidth=1.6)
        if k < len(cell.box_names):
            style = {"facecolor": colour, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
            name = _literal(cell.box_names[k])[:18]
            axis.text(
                max(box[0], 0), max(box[1], 0), name, fontsize=4.5, color="white", va="top", clip_on=True, bbox=style
            )
    if cell.crop is not None:
        _frame(axis, cell.crop, edgecolor="white", linewidth=2.2)
        _frame(axis, cell.crop, edgecolor=INK, linewidth=1.0, linestyle="--")
    axis.set_xlim(-0.5, width - 0.5)
    axis.set_ylim(height - 0.5, -0.5)
    axis.set_title(_literal(cell.caption), fontsize=7, loc="left", linespacing=1.25)


def _frame(axis: Axes, box: Sequence[float] | Doubles, **style: Any) -> None:
    x1, y1, x2, y2 = (float(v) for v in box)
    # imshow puts the middle of the first pixel at 0.
    axis.add_patch(Rectangle((x1 - 0.5, y1 - 0.5), x2 - x1, y2 - y1, fill=False, clip_on=True, **style))


def draw_data_summary(path: str | Path, splits: Mapping[str, Mapping[str, Any]], *, title: str = "") -> None:
    """Draw class balance (as ALS Fig. 5), boxes per image, and the histograms of box area and objectness.

    Args:
        path: ``.png``, ``.svg`` or ``.pdf``.
        splits: ``document["splits"]`` of an inspection.
        title: Written above.
    """
    path = figure_path(path)
    with_boxes = {name: facts["boxes"] for name, facts in splits.items() if facts["boxes"].get("number")}
    panels = 1 + (3 if with_boxes else 0)
    with in_style():
        figure, axes = new_axes((3.1 * panels if panels > 1 else 6.0, 3.3), panels)
        if title:
            figure.suptitle(_literal(title), fontsize=10)
        _balance(axes[0], splits)
        if with_boxes:
            _histograms(axes[1:], with_boxes)
        if len(splits) > 1:
            axes[0].legend(frameon=False, fontsize=8)
        save_figure(figure, path)


def _balance(axis: Axes, splits: Mapping[str, Mapping[str, Any]]) -> None:
    pixels = any(facts["pixels"] for facts in splits.values())
    for k, (name, facts) in enumerate(splits.items()):
        values = facts["pixels"] if pixels else facts["class_counts"]
        colour = SERIES[k % len(SERIES)]
        if len(values) <= _NAMED_CLASSES:
            width = 0.8 / len(splits)
            at = np.arange(len(values)) + (k - (len(splits) - 1) / 2) * width
            axis.bar(at, list(values.values()), width, color=colour, label=_cut(name))
            axis.set_xticks(range(len(values)), [_cut(v) for v in values], rotation=90, fontsize=7)
        else:
            axis.plot(sorted(values.values(), reverse=True), color=colour, label=_cut(name))
            axis.set_xlabel("class, by size")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("share of pixels" if pixels else "samples")
    axis.set_title("pixels of each class" if pixels else "samples of each class", loc="left")


def _histograms(axes: Sequence[Axes], splits: Mapping[str, Mapping[str, Any]]) -> None:
    most = 10
    for k, boxes in enumerate(splits.values()):
        colour, width = SERIES[k % len(SERIES)], 0.8 / len(splits)
        shift = (k - (len(splits) - 1) / 2) * width
        per_image = np.zeros(most + 1)
        for number, images in boxes["images_by_number"].items():
            per_image[min(int(number), most)] += images
        axes[0].bar(np.arange(most + 1) + shift, per_image / max(per_image.sum(), 1), width, color=colour)
        for axis, key in zip(axes[1:], ("area_histogram", "objectness_histogram"), strict=True):
            counts = np.asarray(boxes[key], dtype=float)
            edges = np.asarray(boxes["edges"])
            axis.stairs(counts / max(counts.sum(), 1), edges, color=colour, fill=False, linewidth=1.6)
        axes[2].axvline(boxes["mean_objectness"], color=colour, linestyle=":", linewidth=1.2)
    axes[0].set_xticks(range(most + 1), [*map(str, range(most)), f"{most}+"])
    for axis, title, label in zip(
        axes,
        ("boxes per image", "area of boxes", "objectness of images"),
        ("boxes", "share of the image", "share of the image (mean dotted)"),
        strict=True,
    ):
        axis.set_title(title, loc="left")
        axis.set_xlabel(label)
        axis.set_ylabel("share")
        axis.grid(axis="y", color=BASE, linewidth=0.4)
        axis.set_axisbelow(True)


def _cut(name: str) -> str:
    """A name as it is drawn; matplotlib leaves labels out of a legend that begin with an underscore."""
    label = _literal(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\u2026")
    return f"\u200b{label}" if label.startswith("_") else label


def _literal(text: str) -> str:
    """Text that matplotlib takes as it is: no mathematics between dollar signs, nothing that cannot be drawn."""
    drawable = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    return drawable.replace("$", r"\$")


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
    low, high, accuracy = (known_values(method.reliability[key]) for key in ("low", "high", "accuracy"))
    filled = ~np.isnan(accuracy)
    widths = (high - low)[filled]
    axis.bar(low[filled], accuracy[filled], widths, align="edge", color=BASE, edgecolor="white", linewidth=0.4)
    # A bin that is never right has a bar without height: the point shows that it is there.
    axis.plot(low[filled] + widths / 2, accuracy[filled], "o", color=INK, markersize=2, clip_on=False)
    axis.plot([0, 1], [0, 1], color=WRONG, linewidth=0.9, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 1), yticks=(0, 1))
    axis.tick_params(labelsize=6, colors=INK)
    axis.set_title(f"{method.name}: ECE {100 * method.numbers['ece']:.2f}%", loc="left", fontsize=7)


def overlay_map(pixels: Pixels, heat: Doubles) -> Pixels:
    """A picture [H, W, 3] in grey under its map [H, W] in colour: dark where the map is 0, yellow where it is 1."""
    grey = (pixels @ np.array([0.299, 0.587, 0.114]))[..., None] / 255
    share = _PICTURE[0] + (_PICTURE[1] - _PICTURE[0]) * heat[..., None]
    colours = np.asarray(colormaps["inferno"](heat))[..., :3]
    blend: Pixels = np.rint(255 * (share * grey + (1 - share) * colours)).astype(np.uint8)
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


def draw_peaks(axes: Sequence[Axes], image: npt.ArrayLike, rows: Mapping[str, Sequence[float]], words: str) -> None:
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
