"""Charts of a watch over its batches, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calibrant._numbers import significant
from calibrant.report.document import Part
from calibrant.report.html.charts import coloured
from calibrant.report.html.svg import Plot, Point, line, short, title
from calibrant.report.text import allowed, count, finite, percent, plain, round_percent, typeset

SIZE = (400, 300)
#: log10 of the largest and the smallest evidence that is drawn as it is.
HIGHEST, LOWEST = 12.0, -3.0


def rates(ident: str, arrivals: Sequence[Part], promised: float | None) -> str:
    """The error rate so far with its limits, the rate of each arrival as a dot, and the promised one as a line."""
    own = [part["errors"] / part["answers"] for part in arrivals]
    ends = [value for part in arrivals[len(arrivals) // 4 :] for value in (part["low"], part["high"])]
    top = max([*own, *ends, promised or 0.0, 0.01])
    plot = _plot(len(arrivals), (0.0, min(1.0, 1.1 * top)))
    plot.axes("arrival of labels", "wrong answers", _whole, round_percent)
    band = [(k + 1.0, part["high"]) for k, part in enumerate(arrivals)]
    band += [(k + 1.0, part["low"]) for k, part in reversed(list(enumerate(arrivals)))]
    mean = [(k + 1.0, part["value"]) for k, part in enumerate(arrivals)]
    marks = [f'<path class="limits" d="{plot.path(band)}Z"/>', f'<path class="course s0" d="{plot.path(mean)}"/>']
    if promised is not None:
        marks.append(_level(plot, promised))
    for k, (part, rate) in enumerate(zip(arrivals, own, strict=True)):
        tip = f"{plain(part['batch'])}: {percent(rate)} of {count(part['answers'])} answers wrong"
        marks.append(_dot(plot, (k + 1.0, rate), tip, "s1"))
    plot.add(plot.clipped(*marks))
    last = arrivals[-1]
    text = (
        f"After {len(arrivals)} arrivals of labels {percent(last['value'])} of answers are wrong, with limits from "
        f"{percent(last['low'])} to {percent(last['high'])}"
        + ("." if promised is None else f"; at most {allowed(promised)} is promised.")
    )
    return plot.render(ident, "Wrong answers over time", text)


def coverage(ident: str, batches: Sequence[Part], fitted: float | None) -> str:
    """The share answered in each batch, and that of the fit as a line."""
    points = [(k + 1.0, row["coverage"]) for k, row in enumerate(batches) if row["coverage"] is not None]
    plot = _plot(len(batches), (0.0, 1.0))
    plot.axes("batch", "answered", _whole, round_percent)
    marks = [f'<path class="course s0" d="{plot.path(points)}"/>'] if points else []
    if finite(fitted) is not None and fitted is not None:
        marks.append(_level(plot, fitted))
    marks += [
        _dot(plot, (x, y), f"{plain(batches[int(x) - 1]['name'])}: {percent(y)} answered", "s0") for x, y in points
    ]
    plot.add(plot.clipped(*marks))
    text = f"The share answered in {len(batches)} batches; {percent(fitted)} at the fit."
    return plot.render(ident, "Share answered over time", text)


def evidence(ident: str, tests: Sequence[Part], names: Mapping[str, str]) -> str:
    """The evidence of some tests after every batch, on a logarithmic scale, and where their alarm begins."""
    values = [value for test in tests for value in test["log10_evidence"]]
    limit = max(test["log10_limit"] for test in tests)
    top = min(HIGHEST, max([limit + 0.5, *values]))
    low = max(LOWEST, min([-1.0, *values]))
    plot = _plot(max(len(test["batches"]) for test in tests), (low, top + 0.1))
    plot.axes("batch", "evidence", _whole, _odds)
    marks = [_level(plot, limit)]
    for k, test in enumerate(tests):
        points = [(i + 1.0, min(HIGHEST, value)) for i, value in enumerate(test["log10_evidence"])]
        marks.append(f'<path class="course {coloured(k)}" d="{plot.path(points)}"/>')
        for (x, y), name in zip(points, test["batches"], strict=True):
            tip = f"{names[test['name']]}, {plain(name)}: {significant(10**y)} to 1"
            marks.append(_dot(plot, (x, y), tip, coloured(k)))
    plot.add(plot.clipped(*marks))
    over = [names[test["name"]] for test in tests if test["alarm_since"] is not None]
    text = f"The alarm begins at {significant(10**limit)} to 1. " + (
        f"It was reached by: {', '.join(over)}." if over else "Nothing has reached it."
    )
    return plot.render(ident, "Evidence over time", text)


def _plot(batches: int, y: Point) -> Plot:
    return Plot(*SIZE, (0.5, max(batches, 2) + 0.5), y)


def _level(plot: Plot, value: float) -> str:
    return line("promised", plot.at_x(plot.x[0]), plot.at_y(value), plot.at_x(plot.x[1]), plot.at_y(value))


def _dot(plot: Plot, point: Point, tip: str, kind: str) -> str:
    x, y = short(plot.at_x(point[0])), short(plot.at_y(point[1]))
    return f'<circle class="looked {kind}" cx="{x}" cy="{y}" r="3">{title(tip)}</circle>'


def _whole(value: float) -> str:
    return count(value) if value == math.floor(value) and value >= 1 else ""


def _odds(log10: float) -> str:
    """A power of ten; nothing between them."""
    if abs(log10 - round(log10)) > 1e-9:
        return ""
    power = round(log10)
    if power > 4:
        return typeset(f"1e{power}").rpartition("\u00a0")[2]
    return count(10**power) if power >= 0 else f"1/{count(10**-power)}"
