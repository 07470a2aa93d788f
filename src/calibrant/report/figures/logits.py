"""Figures of SC's look at the logits: sorted, normalised, and regularised by label smoothing.

Each function takes a path (``.png``, ``.svg``, ``.pdf``) or a matplotlib axis to draw on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from calibrant._arrays import Doubles
from calibrant.report.figures import BASE, DASHES, DOWN, INK, MUTED, SERIES, axis_at, literal, set_title, shares
from calibrant.report.text import round_percent

if TYPE_CHECKING:
    from calibrant.selective import MSPBin, RankStatistics


def draw_rank_statistics(
    target: str | Path | Axes, statistics: RankStatistics, *, label: str, title: str | None = None
) -> None:
    """Draw the mean over samples at every rank, largest logit first, with one standard deviation about it.

    Args:
        target: a path, or an axis to draw on.
        statistics: a part of what `sorted_logits` gives.
        label: of the vertical axis, as mathematics where it has dollars.
        title: written above.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.selective import sorted_logits
        >>> axis = Figure().subplots()
        >>> draw_rank_statistics(axis, sorted_logits([[0.0, 2.0], [1.0, 3.0]]).plain, label="$v$")
        >>> axis.get_lines()[0].get_ydata().tolist()
        [2.5, 0.5]

    Reference:
        SC, Fig. 18.
    """
    rank = np.arange(1, len(statistics.mean) + 1)
    with axis_at(target, (3.0, 2.6)) as axis:
        low, high = statistics.mean - statistics.std, statistics.mean + statistics.std
        axis.fill_between(rank, low, high, color=SERIES[0], alpha=0.2, linewidth=0)
        axis.plot(rank, statistics.mean, color=SERIES[0], linewidth=1.5)
        axis.axhline(0, color=MUTED, linewidth=0.6, zorder=1)
        axis.set_xlim(1, max(2, len(rank)))
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=2))
        axis.set_xlabel("rank of the logit")
        axis.set_ylabel(label)
        set_title(axis, title)


def draw_normalised_given_max_logit(
    target: str | Path | Axes,
    bins: Sequence[MSPBin],
    *,
    label: str = "normalised largest logit",
    title: str | None = None,
) -> None:
    """Draw the normalised largest logit given the largest, a line with one standard deviation for each bin of the MSP.

    A line is broken where a window has too few samples.

    Args:
        target: as in `draw_rank_statistics`.
        bins: what `normalised_given_max_logit` gives.
        label: of the vertical axis.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.selective import normalised_given_max_logit
        >>> axis = Figure().subplots()
        >>> bins = normalised_given_max_logit([0.5, 0.5], [3.0, 4.0], [0.8, 0.6], edges=[0.4, 0.6], fewest=1)
        >>> draw_normalised_given_max_logit(axis, bins)
        >>> [text.get_text() for text in axis.get_legend().get_texts()]
        ['40% to 60%']

    Reference:
        SC, Fig. 19.
    """
    if not bins:
        raise ValueError("the normalised largest logit needs at least one bin of the MSP with samples, got none")
    with axis_at(target, (3.4, 2.8)) as axis:
        for k, part in enumerate(bins):
            colour, windows = SERIES[k % len(SERIES)], part.normalised
            low, high = windows.mean - windows.std, windows.mean + windows.std
            axis.fill_between(part.max_logit, low, high, color=colour, alpha=0.18, linewidth=0)
            words = f"{round_percent(part.low)} to {round_percent(part.high)}"
            axis.plot(part.max_logit, windows.mean, DASHES[k % len(DASHES)], color=colour, linewidth=1.5, label=words)
        axis.set_xlabel("largest logit")
        axis.set_ylabel(label)
        axis.legend(fontsize=7, frameon=False, title="MSP", title_fontsize=7)
        set_title(axis, title)


def draw_regularisation_by_error(
    target: str | Path | Axes, gradients: Mapping[str, tuple[Doubles, Doubles]], *, title: str | None = None
) -> None:
    """Draw how strongly the largest logit is regularised against the probability of an error.

    Args:
        target: as in `draw_rank_statistics`.
        gradients: by name the probabilities of an error and the gradient of the regularisation at each.
        title: likewise.

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
            colour, dash = SERIES[k % len(SERIES)], DASHES[k % len(DASHES)]
            axis.plot(error, gradient, dash, color=colour, linewidth=1.5, label=literal(name))
        shares(axis, x=(0, 1))
        axis.set_xlabel("probability of an error")
        axis.set_ylabel("gradient on the largest logit")
        axis.legend(fontsize=7, frameon=False)
        set_title(axis, title)


def draw_regularisation(
    target: str | Path | Axes, softmax: Doubles, truth: Doubles, gradient: Doubles, *, title: str | None = None
) -> None:
    """Draw a softmax, the true distribution, and how label smoothing's regularisation moves each logit.

    Args:
        target: as in `draw_rank_statistics`.
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
        axis.set_xlabel("class")
        axis.set_ylabel("probability")
        axis.legend([bars, outlines], ["softmax", "true distribution"], fontsize=6.5, frameon=False, loc="upper right")
        set_title(axis, title)
