"""Figures of losses: the labels that they train towards, targets for three classes, settings, regularisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from calibrant.base.arrays import Doubles
from calibrant.base.numbers import fixed
from calibrant.report.figures import (
    BASE,
    DASHES,
    DOWN,
    INK,
    MUTED,
    SERIES,
    UP,
    WRONG,
    axis_at,
    figure_path,
    in_style,
    label_axis,
    line_style,
    literal,
    new_figure,
    save_figure,
    set_title,
    shares,
)
from calibrant.report.text import round_percent

#: Where the three classes lie: the upper corner, the lower left and the lower right.
_CORNERS = np.array([[0.5, np.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]])
#: Values of a setting, means and standard deviations of a metric there.
Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]


def draw_lens(
    path: str | Path,
    *,
    logits: Sequence[float],
    label: int,
    probs: Doubles,
    target: Doubles,
    effective: Mapping[str, Doubles],
    sweep: tuple[Doubles, Mapping[str, Doubles]] | None = None,
) -> None:
    """Draw the label each loss really trains towards, as ACLS Fig. 1 compares them.

    Args:
        path: ``.png``, ``.svg`` or ``.pdf``.
        logits: the sample's logits, for the axis.
        label: its class.
        probs: softmax probabilities ``[C]``.
        target: the given label ``[C]``.
        effective: the effective label ``[C]`` of each loss, by the title of its panel.
        sweep: confidences, and for each loss how much it lowers the label of the predicted class at each of them.
    """
    path = figure_path(path)
    panels = 2 + len(effective)
    columns = min(4, panels)
    rows = -(-panels // columns)
    with in_style():
        figure = new_figure((2.3 * columns, 1.9 * rows + (2.6 if sweep else 0.4)))
        ratios = [1.9 * rows, 2.4][: 2 if sweep else 1]
        parts = figure.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False).ravel()
        axes = np.ravel(parts[0].subplots(rows, columns, sharey=True))
        bars = [probs, target, *effective.values()]
        low, high = min(0.0, *(float(b.min()) for b in bars)), max(1.0, *(float(b.max()) for b in bars))
        for axis in axes:
            axis.set_ylim(low - 0.12 * (high - low), high + 0.16 * (high - low))
        _bars(axes[0], "probabilities $p$", probs, logits, label)
        _bars(axes[1], "given label $q$", target, logits, label)
        for axis, (name, row) in zip(axes[2:], effective.items(), strict=False):
            _bars(axis, name, row, logits, label, reference=target)
        for axis in axes[panels:]:
            axis.set_axis_off()
        for axis in axes[:panels:columns]:
            axis.set_ylabel("label $q'$")
        if sweep:
            _curves(parts[1].subplots(1, 1), *sweep)
        save_figure(figure, path)


def _bars(
    axis: Axes, title: str, row: Doubles, logits: Sequence[float], label: int, *, reference: Doubles | None = None
) -> None:
    """One panel; against a reference, what was taken is red and what was added is blue."""
    x = np.arange(len(row))
    axis.set_title(title, fontsize=9, loc="left")
    axis.axhline(0, color=MUTED, linewidth=0.6)
    names = [f"$z$={z:g}" for z in logits]
    names[label] += "\nlabel"
    axis.set_xticks(x, names, fontsize=7)
    axis.tick_params(length=0)
    if reference is None:
        axis.bar(x, row, 0.62, color=BASE)
    else:
        axis.bar(x, np.minimum(row, reference), 0.62, color=BASE)
        change = row - reference
        for sign, colour in ((-1, DOWN), (1, UP)):
            moved = np.where(np.sign(change) == sign, change, 0.0)
            axis.bar(x, np.abs(moved), 0.62, bottom=np.minimum(row, reference), color=colour, alpha=0.75)
    top = row if reference is None else np.maximum(row, reference)
    for k, (value, y) in enumerate(zip(row, top, strict=True)):
        axis.annotate(_short(value), (k, max(y, 0.0)), (0, 2), textcoords="offset points", ha="center", fontsize=7)


def _short(value: float) -> str:
    """Three decimals, without trailing zeros or a minus before nothing."""
    text = fixed(value, 3).rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _curves(axis: Axes, confidence: Doubles, lowered: Mapping[str, Doubles]) -> None:
    axis.set_title("how far the label of the predicted class is lowered, by its confidence", fontsize=9, loc="left")
    axis.axhline(0, color=MUTED, linewidth=0.6)
    # Stretch the end where the methods differ: the axis is log-odds, its ticks are confidences.
    odds = np.log(confidence) - np.log1p(-confidence)
    for i, (name, row) in enumerate(lowered.items()):
        axis.plot(odds, row, DASHES[i % len(DASHES)], label=name, linewidth=1.4)
    ticks = [c for c in (0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 0.9999, 0.99999) if confidence[0] <= c <= confidence[-1]]
    axis.set_xticks([float(np.log(c) - np.log1p(-c)) for c in ticks], [f"{c:g}" for c in ticks])
    axis.set_xlabel("confidence $p_{\\hat y}$ (log-odds scale)")
    axis.set_ylabel("$f\\,C$ at $\\hat y$")
    axis.set_yscale("symlog", linthresh=0.01)
    axis.legend(fontsize=7, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(1.0, 1.0))


class Mark(NamedTuple):
    """A distribution, its name beside it, and how it is drawn."""

    point: Sequence[float]
    words: str
    filled: bool = True
    colour: str = INK
    beside: tuple[int, int] = (6, 4)


def at(points: npt.ArrayLike) -> Doubles:
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


def draw_regulariser(
    axis: Axes, counts: npt.NDArray[np.int64], edges: Doubles, zero: float, *, title: str | None = None
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
    corner = edges[0], float(share[0])
    axis.annotate(f"0 for {100 * zero:.1f}%", corner, (14, 8), textcoords="offset points", fontsize=8, color=WRONG)
    label_axis(axis, f"regulariser, above {edges[-1]:g} in the last bin", "samples", title)


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
        colour, dash = line_style(k)
        axis.errorbar(
            values, 100 * np.asarray(means, np.float64), whiskers, color=colour, linestyle=dash,
            marker="o", markersize=3, linewidth=1.2, elinewidth=0.7, capsize=1.5, label=literal(name),
        )  # fmt: skip
    if log:
        axis.set_xscale("log")
    axis.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.5)
    if len(curves) > 1:
        axis.legend(fontsize=7, frameon=False)
    label_axis(axis, label, f"{metric} (%)", title)


def draw_regularisation_by_error(
    target: str | Path | Axes, gradients: Mapping[str, tuple[Doubles, Doubles]], *, title: str | None = None
) -> None:
    """Draw how strongly the largest logit is regularised against the probability of an error.

    Args:
        target: a path, or an axis to draw on.
        gradients: by name the probabilities of an error and the gradient of the regularisation at each.
        title: written above.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> axis = Figure().subplots()
        >>> draw_regularisation_by_error(axis, {"alpha = 0.1": (np.array([0.0, 1.0]), np.array([0.09, -0.01]))})
        >>> axis.get_lines()[-1].get_ydata().tolist()
        [0.09, -0.01]

    Reference:
        SC, Eq. 16.
    """
    with axis_at(target, (3.2, 2.6)) as axis:
        axis.axhline(0, color=MUTED, linewidth=0.6, zorder=1)
        for k, (name, (error, gradient)) in enumerate(gradients.items()):
            colour, dash = line_style(k)
            axis.plot(error, gradient, dash, color=colour, linewidth=1.5, label=literal(name))
        shares(axis, x=(0, 1))
        axis.legend(fontsize=7, frameon=False)
        label_axis(axis, "probability of an error", "gradient on the largest logit", title)


def draw_regularisation(
    target: str | Path | Axes, softmax: Doubles, truth: Doubles, gradient: Doubles, *, title: str | None = None
) -> None:
    """Draw a softmax, the true distribution, and how label smoothing's regularisation moves each logit.

    Args:
        target: as in `draw_regularisation_by_error`.
        softmax: ``[K]`` of the model, drawn as bars.
        truth: ``[K]`` the true distribution, drawn as outlines.
        gradient: ``[K]`` of the regularisation; descent moves each logit the other way, as its arrow shows.
        title: likewise.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> axis = Figure().subplots()
        >>> softmax, truth = np.array([0.7, 0.3]), np.array([0.9, 0.1])
        >>> draw_regularisation(axis, softmax, truth, 0.2 * (truth - 0.5))
        >>> [round(float(bar.get_height()), 2) for bar in axis.patches[:2]]
        [0.7, 0.3]

    Reference:
        SC, Fig. 7.
    """
    at = np.arange(1, len(softmax) + 1)
    with axis_at(target, (2.8, 2.3)) as axis:
        bars = axis.bar(at, softmax, 0.55, color=BASE, label="softmax")
        outlines = axis.bar(
            at, truth, 0.8, facecolor="none", edgecolor=INK, linewidth=0.9, linestyle=":", label="true distribution"
        )
        # An arrow as long as the bar of a sure prediction would stand for a gradient of one third.
        moves, tops = -3.0 * gradient, np.maximum(softmax, truth) + 0.03
        for x, top, move in zip(at, tops, moves, strict=True):
            ends = (top, top + move) if move > 0 else (top - move, top)
            arrow = {"arrowstyle": "-|>,head_width=0.15,head_length=0.25", "color": DOWN, "shrinkA": 0, "shrinkB": 0}
            axis.annotate("", (float(x), ends[1]), (float(x), ends[0]), arrowprops=arrow)
        axis.set_ylim(0, max(1.5, float((tops + np.abs(moves)).max())))
        axis.set_yticks(np.linspace(0, 1, 5))
        axis.set_xticks(at)
        axis.legend([bars, outlines], ["softmax", "true distribution"], fontsize=6.5, frameon=False, loc="upper right")
        label_axis(axis, "class", "probability", title)
