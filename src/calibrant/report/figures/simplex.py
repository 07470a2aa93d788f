"""Distributions of three classes as points of a triangle (LR, Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from calibrant.report.figures import INK, MUTED, SERIES, set_title

#: Where the three classes lie: the upper corner, the lower left and the lower right.
_CORNERS = np.array([[0.5, np.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]])


class Mark(NamedTuple):
    """A distribution, its name beside it, and how it is drawn."""

    point: Sequence[float]
    words: str
    filled: bool = True
    colour: str = INK
    beside: tuple[int, int] = (6, 4)


def at(points: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Where distributions ``[..., 3]`` lie in the plane: probabilities are distances from the sides."""
    return np.asarray(points, np.float64) @ _CORNERS


def draw_simplex(
    axis: Axes,
    marks: Sequence[Mark],
    *,
    region: npt.ArrayLike | None = None,
    arrows: Sequence[tuple[Sequence[float], Sequence[float]]] = (),
    level: Mapping[float, npt.ArrayLike] | None = None,
    title: str | None = None,
) -> None:
    """Draw the triangle of all distributions of three classes.

    Args:
        axis: To draw on.
        marks: Points with names.
        region: Corners ``[N, 3]`` of a shaded set.
        arrows: From one distribution to another.
        level: Lines ``[N, 3]`` along which a loss has the value.
        title: Written above.
    """
    axis.fill(*_CORNERS.T, facecolor="none", edgecolor=INK, linewidth=1.0)
    if region is not None:
        axis.fill(*at(region).T, facecolor=SERIES[5], alpha=0.35, edgecolor=SERIES[0], linewidth=0.8)
    for value, line in (level or {}).items():
        x, y = at(line).T
        axis.plot(x, y, color=MUTED, linewidth=0.7, linestyle=":")
        axis.annotate(f"{value:g}", (float(x[0]), float(y[0])), fontsize=6, color=MUTED)
    for start, end in arrows:
        style = {"arrowstyle": "->", "color": INK, "linewidth": 0.9, "shrinkA": 4, "shrinkB": 4}
        axis.annotate("", tuple(at(end)), tuple(at(start)), arrowprops=style)
    for mark in marks:
        x, y = at(mark.point)
        face = mark.colour if mark.filled else "white"
        axis.plot(x, y, "o", markersize=5, markerfacecolor=face, markeredgecolor=mark.colour, clip_on=False)
        axis.annotate(mark.words, (x, y), mark.beside, textcoords="offset points", fontsize=8, color=mark.colour)
    axis.set_aspect("equal")
    axis.set_axis_off()
    axis.margins(0.08)
    set_title(axis, title)
