"""Reliability with a part of it enlarged (MbLS, appendix, Fig. 2)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from calibrant.report.document import Part
from calibrant.report.figures import BASE, INK, MUTED, SERIES, WRONG, set_title, shares


def draw_reliability_zoom(
    axes: tuple[Axes, Axes], bins: Part, *, zoom: tuple[float, float], title: str | None = None
) -> None:
    """Draw accuracy by confidence against the diagonal, and the same from one confidence to another in a second axis.

    Args:
        axes: For the whole, and for the part.
        bins: ``"low"``, ``"high"``, ``"count"``, ``"confidence"`` and ``"accuracy"`` of every bin.
        zoom: Ends of the part, of both axes.
        title: Written above.
    """
    low, high, count, confidence, accuracy = (
        np.asarray(bins[key], np.float64) for key in ("low", "high", "count", "confidence", "accuracy")
    )
    filled = count > 0
    for axis, (start, end) in zip(axes, ((0.0, 1.0), zoom), strict=True):
        axis.bar(
            low[filled],
            accuracy[filled],
            (high - low)[filled],
            align="edge",
            color=BASE,
            edgecolor="white",
            linewidth=0.4,
        )
        axis.plot([0, 1], [0, 1], color=WRONG, linewidth=0.9, linestyle="--")
        axis.plot(confidence[filled], accuracy[filled], color=SERIES[0], marker=".", markersize=4, linewidth=1.0)
        shares(axis, x=(start, end), y=(start, end))
        axis.set_aspect("equal")
        axis.tick_params(labelsize=7)
    corner, side = zoom[0], zoom[1] - zoom[0]
    axes[0].add_patch(Rectangle((corner, corner), side, side, fill=False, edgecolor=MUTED, linewidth=0.8))
    axes[1].spines[:].set_visible(True)
    axes[1].set_xlabel("confidence", color=INK)
    set_title(axes[0], title)
