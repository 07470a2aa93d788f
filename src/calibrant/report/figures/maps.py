"""Maps of one image by several methods as a figure (MbLS, Fig. 3; SC, Figs. 6 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.report.figures import BASE, INK, WRONG, new_figure
from calibrant.report.maps import ImageMaps, MethodMaps

MapRow = Literal["prediction", "confidence", "rank", "normalised_rank", "reliability"]

#: What stands left of a row.
_WORDS = {
    "prediction": "prediction",
    "confidence": "confidence",
    "rank": "wrong pixels",
    "normalised_rank": "wrong pixels,\nnormalised logits",
    "reliability": "accuracy",
}


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
