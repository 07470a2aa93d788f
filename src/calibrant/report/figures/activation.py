"""Class activation maps over their pictures, with what each network says of the picture (ALS, Fig. 6-8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from calibrant.report.document import Part
from calibrant.report.figures import in_style, literal, new_figure, wrapped
from calibrant.report.figures.data import Cell
from calibrant.report.text import percent

#: Green and red that can be read on white; a mark says the same.
_VERDICTS = {True: ("#00694c", "\u2713"), False: ("#a83c00", "\u2717")}
#: How much of the picture is seen where a map is 0, and where it is 1.
_PICTURE = (0.75, 0.3)


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
