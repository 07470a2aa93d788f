"""The figure of the lens: what label each loss really trains towards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant._numbers import fixed
from calibrant.report.figures import BASE, DASHES, DOWN, MUTED, STYLE, UP, figure_path, save_figure

Row = npt.NDArray[np.float64]


def draw_lens(
    path: str | Path,
    *,
    logits: Sequence[float],
    label: int,
    probs: Row,
    target: Row,
    effective: Mapping[str, Row],
    sweep: tuple[Row, Mapping[str, Row]] | None = None,
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
    with matplotlib.rc_context(STYLE):
        height = 1.9 * rows + (2.6 if sweep else 0.4)
        figure = Figure(figsize=(2.3 * columns, height), layout="constrained")
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
    axis: Axes, title: str, row: Row, logits: Sequence[float], label: int, *, reference: Row | None = None
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


def _curves(axis: Axes, confidence: Row, lowered: Mapping[str, Row]) -> None:
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
