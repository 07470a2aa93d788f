"""Confidence against the share of the image that the object covers (ALS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from calibrant.report.document import Part
from calibrant.report.figures import DASHES, INK, SERIES, literal, set_title, shares, wrapped


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
    _diagonal(axis, "confidence = object size")
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


def _diagonal(axis: Axes, words: str) -> None:
    axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":", label=words)
