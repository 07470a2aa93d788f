"""Charts of one model as inline SVG, each with the table of its numbers, which are those of the document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from calibrant.report.document import RELIABILITY, Part
from calibrant.report.html.svg import Plot, Point, line, short, whole_count, words
from calibrant.report.html.tables import figure_numbers, valued
from calibrant.report.text import MINUS, count, finite, isolated, number, percent, round_percent, short_count, span

#: How to read a reliability diagram.
RELIABILITY_LEGEND = (
    '<ul class="legend"><li><span class="box bar"></span>accuracy</li>'
    '<li><span class="box over"></span>claimed but not reached: overconfident</li>'
    '<li><span class="box under"></span>reached but not claimed: underconfident</li></ul>'
)


def reliability(
    ident: str, part: Part, name: str, unit: str, axes: tuple[str, str] = ("confidence", "accuracy"), log: bool = False
) -> str:
    """Accuracy by confidence: bars with intervals, the gap to the diagonal hatched, counts beneath.

    ``axes`` are the words for what is claimed and what happens; ``log`` draws the counts on a logarithmic scale.
    """
    claimed, happened = axes
    plot = Plot(400, 440, (0, 1), (0, 1), margin=(60, 20, 12, 106))
    plot.axes(claimed, happened, round_percent, round_percent, label_at=440 - 106 + 35)
    bins = list(zip(*(part[k] for k in RELIABILITY), strict=True))
    plot.add(*(mark for values in bins for mark in _bars(plot, values, axes, unit)))
    plot.add(line("diagonal", plot.at_x(0), plot.at_y(0), plot.at_x(1), plot.at_y(1)))
    plot.add(*(_whisker(plot, values) for values in bins))
    foot, most = plot.height - 24, max([*part["count"], 1])
    for low, high, n in zip(part["low"], part["high"], part["count"], strict=True):
        x0, x1 = plot.at_x(low), plot.at_x(high)
        height = (math.log1p(n) / math.log1p(most) if log else n / most) * 28
        size = f'width="{short(x1 - x0 - 2)}" height="{short(height)}"'
        plot.add(f'<rect class="count" x="{short(x0 + 1)}" y="{short(foot - 12 - height)}" {size}/>')
        if len(bins) <= 15:
            plot.add(words("small middle", (x0 + x1) / 2, foot, short_count(n)))
    scale = ", logarithmic" if log else ""
    plot.add(words("label middle", (plot.at_x(0) + plot.at_x(1)) / 2, plot.height - 6, f"{unit} per bin{scale}"))
    filled = sum(accuracy is not None for accuracy in part["accuracy"])
    text = (
        f"Bars show the {happened} in {len(bins)} bins of {claimed}, {filled} of them with {unit}, with intervals. "
        "A calibrated model's bars end on the diagonal. The table below holds the numbers."
    )
    return plot.render(ident, f"Reliability diagram of {isolated(name)}", text)


def _bars(plot: Plot, values: Sequence[Any], axes: tuple[str, str], unit: str) -> list[str]:
    """The bar of a bin, and the gap from it to the diagonal; ``values`` are those of `RELIABILITY`."""
    low, high, n, confidence, accuracy, accuracy_low, accuracy_high = values
    if finite(accuracy) is None:
        return []
    tip = (
        f"{axes[0]} {percent(low)} to {percent(high)}: {axes[1]} {percent(accuracy)} "
        f"{span(accuracy_low, accuracy_high, 'share', accuracy)}, mean {axes[0]} {percent(confidence)}, "
        f"{count(n)} {unit}"
    )
    inset = 1.0 / (plot.at_x(1) - plot.at_x(0))
    x = (low + inset, high - inset)
    marks = [plot.box("bar", x, (0, accuracy), tip)]
    if finite(confidence) is not None and confidence != accuracy:
        kind = "over" if confidence > accuracy else "under"
        marks.append(plot.box(f"gap {kind}", x, (accuracy, confidence), tip))
    return marks


def _whisker(plot: Plot, values: Sequence[Any]) -> str:
    """The interval of a bin's accuracy, at the mean confidence: there it meets the diagonal if calibrated."""
    start, end, _, *numbers = values
    confidence, accuracy, low, high = map(finite, numbers)
    if accuracy is None:
        return ""
    x = plot.at_x((start + end) / 2 if confidence is None else confidence)
    dot = f'<circle class="dot" cx="{short(x)}" cy="{short(plot.at_y(accuracy))}" r="2.4"/>'
    if low is None or high is None:
        return dot
    return f'<path class="whisker" d="M{short(x)} {short(plot.at_y(high))}V{short(plot.at_y(low))}"/>{dot}'


def reliability_numbers(
    part: Part, caption: str, unit: str, words: tuple[str, str] = ("Mean confidence", "Accuracy")
) -> str:
    """The numbers behind a reliability diagram; the caption is HTML."""
    rows = (
        (f"({percent(lo)}, {percent(hi)}]", (count(n), percent(c), valued(a, a0, a1, "share")))
        for lo, hi, n, c, a, a0, a1 in zip(*(part[k] for k in RELIABILITY), strict=True)
    )
    return figure_numbers(caption, ("Bin", unit.capitalize(), *words), rows)


def histogram(ident: str, part: Part, name: str, unit: str) -> str:
    """How often each confidence occurs, right and wrong stacked."""
    edges, correct, errors = part["edges"], part["right"], part["wrong"]
    most = max([r + w for r, w in zip(correct, errors, strict=True)] + [1])
    x = (min(0.0, edges[0]), max(1.0, edges[-1]))
    plot = Plot(400, 320, x, (0, most * 1.05))
    plot.axes("confidence", unit, round_percent, whole_count)
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


def histogram_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind a histogram; the caption is HTML."""
    rows = (
        (f"{percent(lo)} to {percent(hi)}", (count(r), count(w)))
        for lo, hi, r, w in zip(part["edges"], part["edges"][1:], part["right"], part["wrong"], strict=False)
    )
    return figure_numbers(caption, ("Confidence", f"Right {unit}", f"Wrong {unit}"), rows)


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


def object_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind confidence against object size; the caption is HTML."""
    keys = ("low", "high", "count", "confidence", "accuracy")
    rows = (
        (f"{percent(lo)} to {percent(hi)}", (count(n), percent(c), percent(a)))
        for lo, hi, n, c, a in zip(*(part[key] for key in keys), strict=True)
    )
    return figure_numbers(caption, ("Object size", unit.capitalize(), "Mean confidence", "Accuracy"), rows)


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
        f"{count(len(points['msp']))} {unit} as points, and the mean of the largest logit with one standard deviation "
        f"to either side, for right and wrong predictions. The axis goes from {number(low)} to {number(high)}."
    )
    return plot.render(ident, f"Largest logit against confidence of {isolated(name)}", text)


def _band(part: Part, word: str) -> list[tuple[float, float, float]]:
    """Confidences, means and spreads where there is a mean."""
    rows = zip(part["msp"], part[f"{word}_mean"], part[f"{word}_spread"], strict=True)
    return [(x, float(m), finite(s) or 0.0) for x, m, s in rows if finite(m) is not None]
