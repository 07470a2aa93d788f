"""Figures drawn with matplotlib; this file has what they share: colours, fonts, formats and how they are written."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibrant.base.arrays import Doubles
from calibrant.base.files import written_aside
from calibrant.report.text import plain, round_percent

FORMATS = (".png", ".svg", ".pdf")

INK, MUTED, BASE, DOWN, UP = "#1f2933", "#7b8794", "#c3cfd9", "#c0392b", "#1f7a8c"
#: Okabe and Ito's colours, which colour-blind readers tell apart; the order is that of the audit page.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1f2933")
RIGHT, WRONG = SERIES[0], SERIES[1]
DASHES = ("-", "--", "-.", ":")

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=SERIES),
    "svg.hashsalt": "calibrant",
}

# Without these the same figure gives another file every second.
_UNDATED: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def figure_path(path: str | Path) -> Path:
    """The path, if a figure can be written there."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: a figure is written as {', '.join(FORMATS)}, got {path.suffix!r}")
    return path


@contextlib.contextmanager
def in_style() -> Iterator[None]:
    """A context in which figures and axes are made in our style, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # with text.usetex in a matplotlibrc of the working folder a figure would need LaTeX
        matplotlib.rcParams.update(STYLE)
        yield


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of ``size`` inches; its axes are to be made `in_style`."""
    return Figure(figsize=size, layout="constrained")


def new_axes(size: tuple[float, float], columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of ``size`` inches in our style with axes beside each other, row after row."""
    with in_style():
        figure = new_figure(size)
        return figure, list(np.ravel(figure.subplots(rows, columns, squeeze=False)))


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same file."""
    with written_aside(path) as aside, in_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # class names come in any script
        figure.savefig(aside, dpi=160, metadata=_UNDATED.get(path.suffix.lower()))


@contextlib.contextmanager
def axis_at(target: str | Path | Axes, size: tuple[float, float]) -> Iterator[Axes]:
    """The axis to draw on: the given one, or that of a new figure of ``size`` inches written to the given path."""
    if isinstance(target, Axes):
        yield target
        return
    path = figure_path(target)
    with in_style():
        figure = new_figure(size)
        yield figure.subplots()
        save_figure(figure, path)


def line_style(k: int) -> tuple[str, str]:
    """Colour and dashes of the k-th line; where there are more lines than colours or dashes, they repeat."""
    return SERIES[k % len(SERIES)], DASHES[k % len(DASHES)]


def draw_band(
    axis: Axes,
    x: Doubles,
    mean: Doubles,
    spread: Doubles,
    style: tuple[str, str],
    *,
    alpha: float = 0.2,
    label: str = "",
) -> list[Line2D]:
    """Draw a mean as a line, and a shade of one spread to either side."""
    colour, dash = style
    axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=alpha, linewidth=0)
    return axis.plot(x, mean, dash, color=colour, linewidth=1.5, label=label)


def known_values(values: Sequence[float | None]) -> Doubles:
    """A series as an array, with NaN where nothing is known."""
    return np.array([np.nan if v is None else v for v in values], np.float64)


def shares(axis: Axes, *, x: tuple[float, float], y: tuple[float, float] | None = None) -> None:
    """Percentages along the axes that hold shares."""
    axis.set_xlim(*x)
    axis.xaxis.set_major_formatter(lambda value, _: round_percent(value))
    if y is not None:
        axis.set_ylim(*y)
        axis.yaxis.set_major_formatter(lambda value, _: round_percent(value))


def literal(text: object) -> str:
    """A name as it is: matplotlib would read dollars as mathematics."""
    words = plain(text).replace("$", "\\$")
    return words if len(words) <= 60 else f"{words[:57]}..."


def wrapped(text: object, most: int) -> str:
    r"""A name in lines of about ``most`` characters, so that titles of neighbouring axes do not meet.

    Example:
        >>> wrapped("Adaptive label smoothing", 16)
        'Adaptive label\nsmoothing'
    """
    lines = [""]
    for word in literal(text).split():
        line = f"{lines[-1]} {word}".strip()
        lines[-1:] = [line] if len(line) <= most or not lines[-1] else [lines[-1], word]
    return "\n".join(lines)


def label_axis(axis: Axes, x: str, y: str, title: str | None) -> None:
    """What the axis shows, and a title above it, as it is, if there is one."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    set_title(axis, title)


def set_title(axis: Axes, title: str | None) -> None:
    """A title above the axis, as it is, if there is one."""
    if title is not None:
        axis.set_title(literal(title), fontsize=9, loc="left")
