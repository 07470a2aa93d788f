"""The audit's figures for papers: the parts of an audit document drawn with matplotlib.

Each function takes a path (``.png``, ``.svg``, ``.pdf``) or a matplotlib axis to draw on, and the part of the document
that the HTML page draws as well. The numbers are those of the document. A title is written above, as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from calibrant.base.arrays import Doubles
from calibrant.report.document import CURVE, RELIABILITY, Part, check_histogram, check_logits, check_series, risk_top
from calibrant.report.figures import (
    BASE,
    INK,
    MUTED,
    RIGHT,
    SERIES,
    WRONG,
    axis_at,
    draw_band,
    known_values,
    label_axis,
    line_style,
    literal,
    set_title,
    shares,
)
from calibrant.report.text import short_count

_UNDER = SERIES[2]


def draw_reliability(target: str | Path | Axes, reliability: Part, *, title: str | None = None) -> None:
    """Draw a reliability diagram: accuracy by confidence with intervals, gaps hatched, counts beneath.

    Args:
        target: a path, or an axis to draw on.
        reliability: ``document["models"][i]["reliability"]``.
        title: written above.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axis = Figure().subplots()
        >>> bins = {"low": [0.0, 0.5], "high": [0.5, 1.0], "count": [0, 40], "confidence": [None, 0.9]}
        >>> bins |= {"accuracy": [None, 0.8], "accuracy_low": [None, 0.65], "accuracy_high": [None, 0.9]}
        >>> draw_reliability(axis, bins)
        >>> axis.get_ylabel()
        'accuracy'
    """
    check_series("a reliability diagram", reliability, RELIABILITY)
    low, high, count, confidence, accuracy, lower, upper = (known_values(reliability[key]) for key in RELIABILITY)
    with axis_at(target, (3.4, 3.9)) as axis:
        is_known = np.isfinite(accuracy)
        centre, width = (low + high) / 2, (high - low) * 0.94
        axis.bar(centre[is_known], accuracy[is_known], width[is_known], color=BASE, label="accuracy")
        for label, sign, colour, hatch in (
            ("overconfident", 1, WRONG, "////"),
            ("underconfident", -1, _UNDER, "\\\\\\\\"),
        ):
            at = is_known & (np.sign(confidence - accuracy) == sign)
            axis.bar(
                centre[at], np.abs(confidence - accuracy)[at], width[at], bottom=np.minimum(confidence, accuracy)[at],
                facecolor="none", edgecolor=colour, linewidth=0.6, hatch=hatch, alpha=0.8, label=label,
            )  # fmt: skip
        axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
        x = np.where(np.isfinite(confidence), confidence, centre)
        axis.plot(x[is_known], accuracy[is_known], ".", color=INK, markersize=4)
        has_limits = is_known & np.isfinite(lower) & np.isfinite(upper)
        axis.vlines(x[has_limits], lower[has_limits], upper[has_limits], color=INK, linewidth=1.0)
        shares(axis, x=(0, 1), y=(0, 1))
        axis.set_aspect("equal")
        axis.set_ylabel("accuracy")
        axis.tick_params(labelbottom=False)
        axis.legend(fontsize=7, frameon=False, loc="upper left")
        _counts(axis, centre, width, count)
        set_title(axis, title)


def _counts(axis: Axes, centre: Doubles, width: Doubles, count: Doubles) -> None:
    """The counts of the bins in a strip of their own below the axis."""
    strip = axis.inset_axes((0.0, -0.22, 1.0, 0.17), sharex=axis)
    strip.bar(centre, count, width, color=MUTED, alpha=0.6)
    strip.set_ylabel("count", fontsize=7)
    strip.set_xlabel("confidence")
    most = float(np.nanmax(count, initial=0.0))
    strip.set_yticks([most] if most else [], [short_count(int(most))] if most else [])
    strip.tick_params(labelsize=7, length=2)
    for side in ("top", "right"):
        strip.spines[side].set_visible(False)


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
    low, high, count, confidence, accuracy = (known_values(bins[key]) for key in RELIABILITY[:5])
    filled = count > 0
    for axis, (start, end) in zip(axes, ((0.0, 1.0), zoom), strict=True):
        widths = (high - low)[filled]
        axis.bar(low[filled], accuracy[filled], widths, align="edge", color=BASE, edgecolor="white", linewidth=0.4)
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


def draw_confidence_histogram(target: str | Path | Axes, histogram: Part, *, title: str | None = None) -> None:
    """Draw how often each confidence occurs, right and wrong predictions stacked.

    Args:
        target: as in `draw_reliability`.
        histogram: ``document["models"][i]["histogram"]``.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axis = Figure().subplots()
        >>> draw_confidence_histogram(axis, {"edges": [0.0, 0.5, 1.0], "right": [2, 30], "wrong": [3, 4]})
        >>> [float(bar.get_height()) for bar in axis.patches]
        [2.0, 30.0, 3.0, 4.0]
    """
    check_histogram("a histogram", histogram)
    edges, correct, errors = (known_values(histogram[key]) for key in ("edges", "right", "wrong"))
    with axis_at(target, (3.4, 2.5)) as axis:
        axis.bar(edges[:-1], correct, np.diff(edges), align="edge", color=RIGHT, label="right")
        axis.bar(edges[:-1], errors, np.diff(edges), align="edge", bottom=correct, color=WRONG, label="wrong")
        shares(axis, x=(min(0.0, edges[0]), max(1.0, edges[-1])))
        axis.legend(fontsize=7, frameon=False, loc="upper left", reverse=True)
        label_axis(axis, "confidence", "samples", title)


def draw_risk_coverage(
    target: str | Path | Axes, curves: Sequence[Part], *, labels: Sequence[str] | None = None, title: str | None = None
) -> None:
    """Draw risk-coverage curves with their intervals on one axis.

    Args:
        target: as in `draw_reliability`.
        curves: ``document["models"][i]["curves"]``, or curves of several files in one list.
        labels: words for the legend, one per curve; by default those of the curves.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axis = Figure().subplots()
        >>> curve = {"coverage": [0.5, 1.0], "risk": [0.0, 0.1], "risk_low": [0.0, 0.05], "risk_high": [0.08, 0.2]}
        >>> curve |= {"label": "confidence (MSP)", "threshold": [0.9, 0.4], "accepted": [20, 40], "errors": [0, 4]}
        >>> draw_risk_coverage(axis, [curve])
        >>> axis.get_legend().get_texts()[0].get_text()
        'confidence (MSP)'
    """
    if not curves:
        raise ValueError("a risk-coverage figure needs at least one curve, got none")
    if labels is not None and len(labels) != len(curves):
        raise ValueError(
            f"a risk-coverage figure needs one label per curve, got {len(labels)} for {len(curves)} curves"
        )
    for curve in curves:
        check_series(f"the curve {str(curve.get('score'))[:80]!r}", curve, CURVE)
    with axis_at(target, (3.6, 2.7)) as axis:
        handles = []
        for k, curve in enumerate(curves):
            coverage, risk, low, high = (known_values(curve[key]) for key in CURVE[:4])
            colour, dash = line_style(k)
            label = labels[k] if labels is not None else curve.get("label") or curve.get("score")
            axis.fill_between(coverage, low, high, color=colour, alpha=0.15, linewidth=0)
            handles += axis.plot(coverage, risk, dash, color=colour, linewidth=1.4, label=literal(label))
        shares(axis, x=(0, 1), y=(0, risk_top(curves)))
        # Given by hand, because a legend left to itself drops names that begin with an underscore.
        words = [str(line.get_label()) for line in handles]
        axis.legend(handles, words, fontsize=7, frameon=False, loc="upper left")
        label_axis(axis, "coverage", "risk", title)


def draw_logit_scatter(target: str | Path | Axes, logits: Part, *, title: str | None = None) -> None:
    """Draw the largest logit against the confidence, as SC Fig. 9 does: points, means and spreads of right and wrong.

    Args:
        target: as in `draw_reliability`.
        logits: ``document["models"][i]["logits"]``.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axis = Figure().subplots()
        >>> logits = {"points": {"msp": [0.9, 0.3], "max_logit": [9.5, 4.2], "right": [True, False]}}
        >>> logits |= {"msp": [0.25, 0.75], "right_mean": [None, 9.0], "right_spread": [None, 1.0]}
        >>> draw_logit_scatter(axis, logits | {"wrong_mean": [4.0, 7.0], "wrong_spread": [0.5, 1.0]})
        >>> axis.get_ylabel()
        'largest logit'
    """
    check_logits("the largest logit against confidence", logits)
    points, centre = logits["points"], known_values(logits["msp"])
    msp, height, is_right = (
        known_values(points["msp"]),
        known_values(points["max_logit"]),
        np.asarray(points["right"], dtype=bool),
    )
    with axis_at(target, (3.4, 2.8)) as axis:
        for word, mask, style in (("right", is_right, line_style(0)), ("wrong", ~is_right, line_style(1))):
            axis.scatter(msp[mask], height[mask], s=4, color=style[0], alpha=0.3, linewidths=0, rasterized=True)
            mean, spread = known_values(logits[f"{word}_mean"]), np.nan_to_num(known_values(logits[f"{word}_spread"]))
            is_known = np.isfinite(mean)
            draw_band(axis, centre[is_known], mean[is_known], spread[is_known], style, label=word)
        shares(axis, x=(0, 1))
        axis.legend(fontsize=7, frameon=False, loc="upper left")
        label_axis(axis, "confidence", "largest logit", title)


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
        colour, dash = line_style(k)
        axis.plot(x, y, dash, color=colour, marker="o", markersize=3, label=literal(name))
    axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":", label="confidence = object size")
    shares(axis, x=(0, 1), y=(0, 1))
    axis.legend(fontsize=7, frameon=False)
    label_axis(axis, "share of the image that the object covers", "mean confidence", title)
