"""Charts of one model as inline SVG, and the small bars of tables. Every number in them comes from the document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.report.document import RELIABILITY, Part
from calibrant.report.html.svg import Plot, Point, line, short, words
from calibrant.report.text import (
    MINUS,
    count,
    escape,
    finite,
    isolated,
    number,
    percent,
    round_percent,
    short_count,
    span,
)

#: The number of colours in the style of the audit page.
COLOURS = 7

#: How to read a reliability diagram.
RELIABILITY_LEGEND = (
    '<ul class="legend"><li><span class="box bar"></span>accuracy</li>'
    '<li><span class="box over"></span>claimed but not reached: overconfident</li>'
    '<li><span class="box under"></span>reached but not claimed: underconfident</li></ul>'
)


def coloured(colour: int) -> str:
    """The class that gives a file its colour; where there are more files than colours, they repeat."""
    return f"s{colour % COLOURS}"


def key(kind: str) -> str:
    """A dot of a colour's class, before a name."""
    return f'<span class="key {kind}"></span>'


def reliability(
    ident: str, part: Part, name: str, unit: str, axes: tuple[str, str] = ("confidence", "accuracy"), log: bool = False
) -> str:
    """Accuracy by confidence: bars with intervals, the gap to the diagonal hatched, counts beneath.

    ``axes`` are the words for what is claimed and what happens; ``log`` draws the counts on a logarithmic scale.
    """
    claimed, happened = axes
    plot = Plot(400, 440, (0, 1), (0, 1), margin=(60, 20, 12, 106))
    plot.axes(claimed, happened, round_percent, round_percent, label_at=440 - 106 + 35)
    bins = [_Bin(unit, axes, *values) for values in zip(*(part[k] for k in RELIABILITY), strict=True)]
    plot.add(*(mark for b in bins for mark in b.bars(plot)))
    plot.add(line("diagonal", plot.at_x(0), plot.at_y(0), plot.at_x(1), plot.at_y(1)))
    plot.add(*(b.whisker(plot) for b in bins))
    foot, most = plot.height - 24, max([b.count for b in bins] + [1])
    for b in bins:
        x0, x1 = plot.at_x(b.low), plot.at_x(b.high)
        height = (math.log1p(b.count) / math.log1p(most) if log else b.count / most) * 28
        size = f'width="{short(x1 - x0 - 2)}" height="{short(height)}"'
        plot.add(f'<rect class="count" x="{short(x0 + 1)}" y="{short(foot - 12 - height)}" {size}/>')
        if len(bins) <= 15:
            plot.add(words("small middle", (x0 + x1) / 2, foot, short_count(b.count)))
    scale = ", logarithmic" if log else ""
    plot.add(words("label middle", (plot.at_x(0) + plot.at_x(1)) / 2, plot.height - 6, f"{unit} per bin{scale}"))
    filled = sum(b.accuracy is not None for b in bins)
    text = (
        f"Bars show the {happened} in {len(bins)} bins of {claimed}, {filled} of them with {unit}, with intervals. "
        "A calibrated model's bars end on the diagonal. The table below holds the numbers."
    )
    return plot.render(ident, f"Reliability diagram of {isolated(name)}", text)


@dataclass(frozen=True)
class _Bin:
    """A bin: what it counts, then the series of `RELIABILITY` at one index."""

    unit: str
    axes: tuple[str, str]
    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None

    @property
    def tip(self) -> str:
        ends = span(self.accuracy_low, self.accuracy_high, "share", self.accuracy)
        return (
            f"{self.axes[0]} {percent(self.low)} to {percent(self.high)}: {self.axes[1]} {percent(self.accuracy)} "
            f"{ends}, mean {self.axes[0]} {percent(self.confidence)}, {count(self.count)} {self.unit}"
        )

    def bars(self, plot: Plot) -> list[str]:
        accuracy, confidence = finite(self.accuracy), finite(self.confidence)
        if accuracy is None:
            return []
        inset = 1.0 / (plot.at_x(1) - plot.at_x(0))
        x = (self.low + inset, self.high - inset)
        marks = [plot.box("bar", x, (0, accuracy), self.tip)]
        if confidence is not None and confidence != accuracy:
            kind = "over" if confidence > accuracy else "under"
            marks.append(plot.box(f"gap {kind}", x, (accuracy, confidence), self.tip))
        return marks

    def whisker(self, plot: Plot) -> str:
        accuracy, low, high = finite(self.accuracy), finite(self.accuracy_low), finite(self.accuracy_high)
        if accuracy is None:
            return ""
        # At the mean confidence: there the interval meets the diagonal if the bin may be calibrated.
        centre = finite(self.confidence)
        x = plot.at_x((self.low + self.high) / 2 if centre is None else centre)
        dot = f'<circle class="dot" cx="{short(x)}" cy="{short(plot.at_y(accuracy))}" r="2.4"/>'
        if low is None or high is None:
            return dot
        y0, y1 = plot.at_y(high), plot.at_y(low)
        return f'<path class="whisker" d="M{short(x)} {short(y0)}V{short(y1)}"/>{dot}'


def histogram(ident: str, part: Part, name: str, unit: str) -> str:
    """How often each confidence occurs, right and wrong stacked."""
    edges, correct, errors = part["edges"], part["right"], part["wrong"]
    most = max([r + w for r, w in zip(correct, errors, strict=True)] + [1])
    x = (min(0.0, edges[0]), max(1.0, edges[-1]))
    plot = Plot(400, 320, x, (0, most * 1.05))
    plot.axes("confidence", unit, round_percent, lambda v: short_count(round(v)) if v == round(v) else "")
    inset = min(0.5, (plot.at_x(1) - plot.at_x(0)) / max(1, len(correct)) / 8) / (plot.at_x(1) - plot.at_x(0))
    for low, high, r, w in zip(edges, edges[1:], correct, errors, strict=False):
        x_range = (low + inset, high - inset)
        tip = f"confidence {percent(low)} to {percent(high)}: {count(r)} right, {count(w)} wrong"
        if r:
            plot.add(plot.box("right", x_range, (0, r), tip))
        if w:
            plot.add(plot.box("wrong", x_range, (r, r + w), tip))
    text = f"Right and wrong predictions, stacked, in {len(correct)} bins of confidence; the largest has {count(most)}."
    return plot.render(ident, f"Histogram of the confidence of {isolated(name)}", text)


def object_sizes(ident: str, part: Part, name: str, unit: str) -> str:
    """Mean confidence by the share of the image that the object covers, with the accuracy there as bars."""
    plot = Plot(400, 360, (0, 1), (0, 1))
    plot.axes("share that the object covers", "mean confidence", round_percent, round_percent)
    points: list[Point] = []
    keys = ("low", "high", "count", "objectness", "confidence", "accuracy")
    for low, high, n, size, confidence, accuracy in zip(*(part[k] for k in keys), strict=True):
        if not n or finite(confidence) is None:
            continue
        tip = (
            f"objects of {percent(low)} to {percent(high)}: mean confidence {percent(confidence)}, accuracy "
            f"{percent(accuracy)}, {count(n)} {unit}"
        )
        plot.add(plot.box("bar", (low + 0.005, high - 0.005), (0, accuracy), tip))
        points.append((size, confidence))
    plot.add(line("diagonal", plot.at_x(0), plot.at_y(0), plot.at_x(1), plot.at_y(1)))
    plot.add(f'<path class="mean right" d="{plot.path(points)}"/>')
    plot.add(
        *(f'<circle class="dot" cx="{short(plot.at_x(x))}" cy="{short(plot.at_y(y))}" r="2.8"/>' for x, y in points)
    )
    text = (
        f"Mean confidence in {len(points)} bins of object size, from {percent(points[0][1])} for the smallest to "
        f"{percent(points[-1][1])} for the largest; bars are accuracies."
        if points
        else "No objects."
    )
    return plot.render(ident, f"Confidence against object size of {isolated(name)}", text)


def logit_scatter(ident: str, part: Part, name: str, unit: str) -> str:
    """The largest logit against the confidence: points, and mean with spread, of right and of wrong predictions."""
    points = part["points"]
    bands = {word: _band(part, word) for word in ("right", "wrong")}
    heights = [v for v in map(finite, points["max_logit"]) if v is not None]
    heights += [h for band in bands.values() for _, mean, half in band for h in (mean - half, mean + half)]
    low, high = (min(heights), max(heights)) if heights else (0.0, 1.0)
    pad = 0.04 * (high - low) or 1.0
    plot = Plot(400, 360, (0, 1), (low - pad, high + pad))
    plot.axes("confidence", "largest logit", round_percent, lambda v: f"{v:g}".replace("-", MINUS))
    for word in ("right", "wrong"):
        pairs = [
            (x, float(y))
            for x, y, r in zip(points["msp"], points["max_logit"], points["right"], strict=True)
            if bool(r) == (word == "right") and finite(y) is not None
        ]
        # A stroke of no length with round ends is a dot: one path for them all.
        dots = "".join(f"M{short(plot.at_x(x))} {short(plot.at_y(y))}h0" for x, y in pairs)
        plot.add(f'<path class="dots {word}" d="{dots}"/>')
    for word, band in bands.items():
        if band:
            upper, lower = [(x, m + h) for x, m, h in band], [(x, m - h) for x, m, h in reversed(band)]
            plot.add(f'<path class="spread {word}" d="{plot.path([*upper, *lower])}Z"/>')
            plot.add(f'<path class="mean {word}" d="{plot.path([(x, m) for x, m, _ in band])}"/>')
    text = (
        f"{count(len(points['msp']))} {unit} as points, and the mean of the largest logit with one spread to "
        f"either side, for right and wrong predictions. The axis goes from {number(low)} to {number(high)}."
    )
    return plot.render(ident, f"Largest logit against confidence of {isolated(name)}", text)


def _band(part: Part, word: str) -> list[tuple[float, float, float]]:
    """Confidences, means and spreads where there is a mean."""
    rows = zip(part["msp"], part[f"{word}_mean"], part[f"{word}_spread"], strict=True)
    return [(x, float(m), finite(s) or 0.0) for x, m, s in rows if finite(m) is not None]


def interval_bar(value: float | None, low: float | None, high: float | None, across: Point, colour: int = 0) -> str:
    """A value and its interval as a bar in a table cell, or the room of one; `bar_legend` says how to read it."""
    value, low, high = finite(value), finite(low), finite(high)
    if value is None or across[0] == across[1]:
        return '<span class="ib"></span>'
    width, height = 88.0, 12.0

    def at(v: float) -> str:
        return short(4 + (min(max(v, across[0]), across[1]) - across[0]) / (across[1] - across[0]) * (width - 8))

    parts = f'<path class="track" d="M4 6H{width - 4:g}"/>'
    if across[0] <= 0 <= across[1]:
        parts += f'<path class="zero" d="M{at(0)} 1v{height - 2:g}"/>'
    if low is not None and high is not None:
        parts += f'<path d="M{at(low)} 6H{at(high)}"/>'
    return (
        f'<svg class="ib {coloured(colour)}" viewBox="0 0 {width:g} {height:g}" aria-hidden="true">{parts}'
        f'<circle cx="{at(value)}" cy="6" r="3"/></svg>'
    )


def bar_legend(scope: str) -> str:
    """How to read the small bars: one line above their table."""
    sample = interval_bar(0.55, 0.3, 0.8, (0.0, 1.0))
    return (
        f'<p class="barkey">{sample} The dot is the value, the thick line its interval and the tick 0; '
        f"the full width spans 0 and {escape(scope)}.</p>"
    )


def reach(values: Sequence[float | None]) -> Point:
    """The range of a column's bars: all of the values, and zero."""
    numbers = [0.0, *(v for v in map(finite, values) if v is not None)]
    return min(numbers), max(numbers)
