"""What settings of a loss do: its regulariser over samples, and metrics over the values of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from calibrant.report.figures import DASHES, MUTED, SERIES, WRONG, literal, set_title
from calibrant.report.text import round_percent

#: Values of a setting, means and standard deviations of a metric there.
Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]


def draw_regulariser(
    axis: Axes, counts: npt.NDArray[np.int64], edges: npt.NDArray[np.float64], zero: float, *, title: str | None = None
) -> None:
    """Draw the histogram of a regulariser over samples, with the share of samples for which it is 0.

    Args:
        axis: To draw on.
        counts: Samples of each bin.
        edges: Edges of the bins; what lies beyond them was counted in the last.
        zero: The share.
        title: Written above.
    """
    share = counts / max(1, counts.sum())
    axis.bar(edges[:-1], share, np.diff(edges), align="edge", color=SERIES[0], edgecolor="white", linewidth=0.5)
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, 1)
    axis.yaxis.set_major_formatter(lambda value, _: round_percent(value))
    axis.set_xlabel(f"regulariser, above {edges[-1]:g} in the last bin")
    axis.set_ylabel("samples")
    axis.annotate(
        f"0 for {100 * zero:.1f}%",
        (edges[0], float(share[0])),
        (14, 8),
        textcoords="offset points",
        fontsize=8,
        color=WRONG,
    )
    set_title(axis, title)


def draw_sweep(
    axis: Axes, curves: Mapping[str, Curve], *, label: str, metric: str, title: str | None = None, log: bool = False
) -> None:
    """Draw a metric in percent over the values of a setting, with its standard deviation over seeds as whiskers.

    Args:
        axis: To draw on.
        curves: By name; values of the setting, means, standard deviations (NaN of one run).
        label: What the setting is called.
        metric: What the metric is called.
        title: Written above.
        log: Whether values of the setting are spaced by their logarithm.
    """
    for k, (name, (values, means, spreads)) in enumerate(curves.items()):
        whiskers = 100 * np.nan_to_num(np.asarray(spreads, np.float64))
        axis.errorbar(
            values, 100 * np.asarray(means, np.float64), whiskers, color=SERIES[k % 7], linestyle=DASHES[k % 4],
            marker="o", markersize=3, linewidth=1.2, elinewidth=0.7, capsize=1.5, label=literal(name),
        )  # fmt: skip
    if log:
        axis.set_xscale("log")
    axis.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.5)
    axis.set_xlabel(label)
    axis.set_ylabel(f"{metric} (%)")
    if len(curves) > 1:
        axis.legend(fontsize=7, frameon=False)
    set_title(axis, title)
