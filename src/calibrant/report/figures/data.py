"""Figures of a data set: a contact sheet with boxes and targets, and the histograms of an inspection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle

from calibrant.report.figures import BASE, INK, MUTED, SERIES, STYLE, figure_path, save_figure

#: Bars that are drawn one by one; beyond that classes become a line.
_NAMED_CLASSES = 24
#: Characters of a name that are drawn: the figure has to have room for the bars.
_LONGEST = 40


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

    pixels: npt.NDArray[np.uint8]
    caption: str
    boxes: npt.NDArray[np.float64] | None = None
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
    with matplotlib.rc_context(STYLE):
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


def _frame(axis: Axes, box: Sequence[float] | npt.NDArray[np.float64], **style: Any) -> None:
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
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.1 * panels if panels > 1 else 6.0, 3.3), layout="constrained")
        axes = np.ravel(figure.subplots(1, panels, squeeze=False))
        if title:
            figure.suptitle(_literal(title), fontsize=10)
        _balance(axes[0], splits)
        if with_boxes:
            _histograms(list(axes[1:]), with_boxes)
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
