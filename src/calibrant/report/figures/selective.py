"""Figures of SC's analyses: they draw what `calibrant.papers` has computed.

Each function takes a path (``.png``, ``.svg``, ``.pdf``) or a matplotlib axis to draw on. The legend stands below the
axis, where it hides nothing; on an axis of a figure without a layout (such as ``layout="constrained"``) it goes where
it hides least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from calibrant.report.document import Part, check_series, risk_top
from calibrant.report.figures import BASE, INK, MUTED, axis_at, draw_band, label_axis, line_style, literal, shares
from calibrant.report.text import count, number, percent, round_percent

if TYPE_CHECKING:
    from calibrant.papers import ErrorsBySource, MaxLogitGivenMSP, MethodCurve, MSPBin, RankStatistics


def draw_risk_coverage_by_method(
    target: str | Path | Axes,
    curves: Mapping[str, MethodCurve],
    *,
    target_risk: float | None = None,
    marks: Mapping[str, float] | None = None,
    families: Mapping[str, str] | None = None,
    title: str | None = None,
) -> None:
    """Draw risk against coverage, one line for each method, with the areas in the legend.

    Args:
        target: a path, or an axis to draw on.
        curves: what `risk_coverage_by_method` gives.
        target_risk: an error rate to mark with a line across.
        marks: coverages by the curve's name, each marked with a dot on its curve.
        families: of curves by name: those of one family have one colour and differ in their dashes.
        title: written above.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.papers import risk_coverage_by_method
        >>> axis = Figure().subplots()
        >>> curves = risk_coverage_by_method({"msp": [0.9, 0.8, 0.7, 0.6]}, [1, 0, 1, 1])
        >>> draw_risk_coverage_by_method(axis, curves, target_risk=0.3)
        >>> [text.get_text() for text in axis.get_legend().get_texts()]
        ['msp, AURC 0.2708', 'target risk 30%']

    Reference:
        SC, Fig. 1, 4 and 9 (left).
    """
    _check_named("a risk-coverage figure", curves)
    parts = [_series(f"the curve {str(name)[:80]!r}", curve, ("coverage", "risk")) for name, curve in curves.items()]
    if target_risk is not None and not 0 <= target_risk <= 1:
        raise ValueError(f"target_risk must be a number between 0 and 1, got {target_risk!r}")
    top = risk_top(parts)
    with axis_at(target, (3.6, 2.6 + 0.15 * (len(curves) + (target_risk is not None)))) as axis:
        handles, words = [], []
        for (name, curve), (colour, dash) in zip(curves.items(), _line_styles(curves, families or {}), strict=True):
            handles += axis.plot(curve.coverage, curve.risk, dash, color=colour, linewidth=1.4)
            words.append(f"{_short(name)}, AURC {number(curve.aurc)}")
            if (at := (marks or {}).get(name)) is not None:
                height = np.interp(at, curve.coverage, curve.risk)
                axis.plot([at], [height], "o", color=colour, markersize=7, markeredgecolor="white", zorder=4)
        if target_risk is not None:
            handles.append(axis.axhline(target_risk, color=MUTED, linewidth=0.8, dashes=(2, 2), zorder=1))
            words.append(f"target risk {round_percent(target_risk)}")
            top = max(top, min(1.0, 1.1 * target_risk))
        shares(axis, x=(0, 1), y=(0, top))
        _legend(axis, handles, words)
        label_axis(axis, "coverage", "risk", title)


def draw_max_logit_given_msp(target: str | Path | Axes, bands: MaxLogitGivenMSP, *, title: str | None = None) -> None:
    """Draw the mean of the largest logit given the MSP, with one standard deviation about it, for right and wrong.

    A line is broken where a window has too few samples.

    Args:
        target: as in `draw_risk_coverage_by_method`.
        bands: what `max_logit_given_msp` gives.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.papers import max_logit_given_msp
        >>> axis = Figure().subplots()
        >>> msp, max_logit, correct = [0.5, 0.6, 0.7, 0.8], [3.0, 4.0, 6.0, 7.0], [0, 1, 0, 1]
        >>> draw_max_logit_given_msp(axis, max_logit_given_msp(msp, max_logit, correct, width=0.5, fewest=1))
        >>> [line.get_label() for line in axis.get_lines()]
        ['right', 'wrong']

    Reference:
        SC, Fig. 9 (right) and 13.
    """
    subject = "the largest logit given the MSP"
    styles = {"right": line_style(0), "wrong": line_style(1)}
    if not all(hasattr(bands, part) for part in ("msp", "right", "wrong")):
        raise ValueError(f"{subject} needs what max_logit_given_msp gives, got {type(bands).__name__}")
    for word in styles:
        part = {"msp": bands.msp, **_series(f"{subject}, {word},", getattr(bands, word), ("mean", "std"))}
        check_series(f"{subject}, {word},", part, ("msp", "mean", "std"))
    with axis_at(target, (3.4, 2.8)) as axis:
        handles = []
        for word, style in styles.items():
            windows = getattr(bands, word)
            handles += draw_band(axis, bands.msp, windows.mean, windows.std, style, label=word)
        shares(axis, x=(0, 1))
        _legend(axis, handles, list(styles), columns=2)
        label_axis(axis, "confidence (MSP)", "largest logit", title)


def draw_rank_statistics(
    target: str | Path | Axes, statistics: RankStatistics, *, label: str, title: str | None = None
) -> None:
    """Draw the mean over samples at every rank, largest logit first, with one standard deviation about it.

    Args:
        target: as in `draw_risk_coverage_by_method`.
        statistics: a part of what `sorted_logits` gives.
        label: of the vertical axis, as mathematics where it has dollars.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.papers import sorted_logits
        >>> axis = Figure().subplots()
        >>> draw_rank_statistics(axis, sorted_logits([[0.0, 2.0], [1.0, 3.0]]).plain, label="$v$")
        >>> axis.get_lines()[0].get_ydata().tolist()
        [2.5, 0.5]

    Reference:
        SC, Fig. 18.
    """
    rank = np.arange(1.0, len(statistics.mean) + 1)
    with axis_at(target, (3.0, 2.6)) as axis:
        draw_band(axis, rank, statistics.mean, statistics.std, line_style(0))
        axis.axhline(0, color=MUTED, linewidth=0.6, zorder=1)
        axis.set_xlim(1, max(2, len(rank)))
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=2))
        label_axis(axis, "rank of the logit", label, title)


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
        target: as in `draw_risk_coverage_by_method`.
        bins: what `normalised_given_max_logit` gives.
        label: of the vertical axis.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.papers import normalised_given_max_logit
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
            words, windows = f"{round_percent(part.low)} to {round_percent(part.high)}", part.normalised
            draw_band(axis, part.max_logit, windows.mean, windows.std, line_style(k), alpha=0.18, label=words)
        axis.legend(fontsize=7, frameon=False, title="MSP", title_fontsize=7)
        label_axis(axis, "largest logit", label, title)


def draw_errors_by_source(
    target: str | Path | Axes,
    results: Mapping[str, ErrorsBySource],
    *,
    coverage: float | None = None,
    sources: Sequence[str] = ("original", "shifted"),
    title: str | None = None,
) -> None:
    """Draw the errors that each method accepts, split by the set they come from, with the shifted set's share.

    Args:
        target: as in `draw_risk_coverage_by_method`.
        results: what `errors_by_source` gives, by the method's name.
        coverage: which of the coverages to draw; needed where the results have several.
        sources: words for the original and the shifted set.
        title: likewise.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from calibrant.papers import errors_by_source
        >>> axis = Figure().subplots()
        >>> result = errors_by_source([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 0], [False, True, True, True], 0.5)
        >>> draw_errors_by_source(axis, {"msp": result})
        >>> [float(bar.get_width()) for bar in axis.patches], axis.texts[0].get_text()
        ([1.0, 1.0], '50.00%')

    Reference:
        SC, Fig. 8 (right).
    """
    _check_named("a figure of errors by source", results)
    if len(sources) != 2:
        raise ValueError(f"sources must be two words, for the original and the shifted set, got {sources!r}")
    rows = [_at_coverage(name, result, coverage) for name, result in results.items()]
    if len({row["coverage"] for row in rows}) > 1:
        raise ValueError("a figure of errors by source needs results at one coverage, got several")
    heights = np.arange(len(rows))
    original, shifted = (np.array([row[key] for row in rows]) for key in ("original_errors", "shifted_errors"))
    with axis_at(target, (3.8, 1.3 + 0.3 * len(rows))) as axis:
        bars = [
            axis.barh(heights, original, 0.65, color=BASE),
            axis.barh(heights, shifted, 0.65, left=original, color=line_style(4)[0]),
        ]
        for y, row in zip(heights, rows, strict=True):
            text = percent(row["shifted_share"]) if row["errors"] > 0 else "no errors"
            axis.annotate(
                text, (row["errors"], y), (3, 0), textcoords="offset points", va="center", fontsize=7, color=INK
            )
        # Room for the share beside the longest bar.
        axis.set_xlim(0, 1.25 * max(1.0, *(row["errors"] for row in rows)))
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axis.set_yticks(heights, [_short(name) for name in results])
        axis.tick_params(axis="y", length=0, labelcolor=INK)
        axis.invert_yaxis()
        words = [f"from {_short(sources[0])}", f"from {_short(sources[1])} (with its share)"]
        _legend(axis, bars, words, columns=2)
        label_axis(axis, f"errors at {round_percent(rows[0]['coverage'])} coverage", "", title)


def _line_styles(names: Iterable[str], families: Mapping[str, str]) -> list[tuple[str, str]]:
    """Colour and dashes of each curve: one colour for each family, and in it other dashes for each curve."""
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(families.get(name, name), []).append(name)
    order = list(members)
    styles = []
    for k, name in enumerate(names):
        family = families.get(name, name)
        dash = members[family].index(name) if families else k
        styles.append((line_style(order.index(family))[0], line_style(dash)[1]))
    return styles


def _at_coverage(name: str, result: ErrorsBySource, coverage: float | None) -> Mapping[str, float]:
    """The numbers of a result at one of its coverages."""
    keys = ("coverage", "errors", "original_errors", "shifted_errors", "shifted_share")
    part = _series(f"the result {str(name)[:80]!r}", result, keys)
    coverages = [float(c) for c in part["coverage"]]
    if coverage is None and len(coverages) != 1:
        raise ValueError(f"the result {str(name)[:80]!r} has the coverages {coverages}, choose one with coverage=")
    if coverage is not None and coverage not in coverages:
        raise ValueError(f"coverage must be one of the result {str(name)[:80]!r}, {coverages}, got {coverage!r}")
    at = 0 if coverage is None else coverages.index(coverage)
    return {key: float(part[key][at]) for key in keys}


def _check_named(subject: str, results: object) -> None:
    """Check that there is something to draw, by name."""
    if not isinstance(results, Mapping) or not results:
        kind = "none" if isinstance(results, Mapping) else type(results).__name__
        raise ValueError(f"{subject} needs a mapping of at least one name to its numbers, got {kind}")


def _series(subject: str, result: Any, keys: Sequence[str]) -> Part:
    """The series of a result by name, checked to be there and equally long."""
    part = {key: getattr(result, key) for key in keys if hasattr(result, key)}
    check_series(subject, part, keys)
    return part


def _short(name: object) -> str:
    """A name that leaves room beside it."""
    text = str(name)
    return literal(text if len(text) <= 32 else f"{text[:29]}...")


def _legend(axis: Axes, handles: Sequence[Any], words: Sequence[str], *, columns: int = 1) -> None:
    """The legend below the axis if a layout makes room for it there, else where it hides least.

    Words are given by hand, because a legend left to itself drops names that begin with an underscore.
    """
    style: dict[str, Any] = {"fontsize": 7, "frameon": False, "ncols": columns}
    figure = axis.figure
    if figure.get_layout_engine() is None:
        axis.legend(handles, words, loc="best", **style)
        return
    # Below the tick labels and the axis label, which are about four lines of text with what is between them.
    down = ScaledTranslation(0, -4 * matplotlib.rcParams["font.size"] / 72, figure.dpi_scale_trans)
    anchor = {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": axis.transAxes + down, "borderaxespad": 0.0}
    axis.legend(handles, words, loc="upper center", **anchor, **style)
