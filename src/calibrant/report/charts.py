"""The audit page's charts as inline SVG. Every number in them comes from the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.report.parts import RELIABILITY, Part, risk_top
from calibrant.report.svg import Plot, Point, line, short, words
from calibrant.report.text import MINUS, count, escape, finite, number, percent, plain, round_percent, short_count, span

#: The number of colours and of line patterns in the page's style.
COLOURS, DASHES = 7, 4

_BAR = (88.0, 12.0)


def coloured(colour: int) -> str:
    """The class that gives a file its colour; there are more files than colours now and then."""
    return f"s{colour % COLOURS}"


def key(colour: int) -> str:
    """A dot in a file's colour, before its name."""
    return f'<span class="key {coloured(colour)}"></span>'


def isolated(text: object) -> str:
    """A name for a plain text: its direction of writing ends with it."""
    return f"\u2068{plain(text)}\u2069"


def reliability(ident: str, part: Part, name: str, unit: str) -> str:
    """Accuracy by confidence: bars with intervals, the gap to the diagonal hatched, counts beneath."""
    plot = Plot(400, 440, (0, 1), (0, 1), margin=(60, 20, 12, 106))
    plot.axes("confidence", "accuracy", round_percent, round_percent, label_at=440 - 106 + 35)
    bins = [_Bin(unit, *values) for values in zip(*(part[k] for k in RELIABILITY), strict=True)]
    plot.add(*(mark for b in bins for mark in b.bars(plot)))
    plot.add(line("diagonal", plot.at_x(0), plot.at_y(0), plot.at_x(1), plot.at_y(1)))
    plot.add(*(b.whisker(plot) for b in bins))
    foot, room, most = plot.height - 24, 28.0, max([b.count for b in bins] + [1])
    for b in bins:
        x0, x1 = plot.at_x(b.low), plot.at_x(b.high)
        tall = b.count / most * room
        top = short(foot - 12 - tall)
        plot.add(
            f'<rect class="count" x="{short(x0 + 1)}" y="{top}" width="{short(x1 - x0 - 2)}" height="{short(tall)}"/>'
        )
        if len(bins) <= 15:
            plot.add(words("small middle", (x0 + x1) / 2, foot, short_count(b.count)))
    plot.add(words("label middle", (plot.at_x(0) + plot.at_x(1)) / 2, plot.height - 6, f"{unit} per bin"))
    known = sum(b.accuracy is not None for b in bins)
    text = (
        f"Bars show the accuracy in {len(bins)} bins of confidence, {known} of them with {unit}, with intervals. "
        "A calibrated model's bars end on the diagonal. The table below holds the numbers."
    )
    return plot.render(ident, f"Reliability diagram of {isolated(name)}", text)


@dataclass(frozen=True)
class _Bin:
    """A bin: what it counts, then the series of `parts.RELIABILITY` at one place."""

    unit: str
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
            f"confidence {percent(self.low)} to {percent(self.high)}: accuracy {percent(self.accuracy)} {ends}, "
            f"mean confidence {percent(self.confidence)}, {count(self.count)} {self.unit}"
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
    edges, right, wrong = part["edges"], part["right"], part["wrong"]
    most = max([r + w for r, w in zip(right, wrong, strict=True)] + [1])
    x = (min(0.0, edges[0]), max(1.0, edges[-1]))
    plot = Plot(400, 320, x, (0, most * 1.05))
    plot.axes("confidence", unit, round_percent, lambda v: short_count(round(v)) if v == round(v) else "")
    inset = min(0.5, (plot.at_x(1) - plot.at_x(0)) / max(1, len(right)) / 8) / (plot.at_x(1) - plot.at_x(0))
    for low, high, r, w in zip(edges, edges[1:], right, wrong, strict=False):
        where = (low + inset, high - inset)
        tip = f"confidence {percent(low)} to {percent(high)}: {count(r)} right, {count(w)} wrong"
        if r:
            plot.add(plot.box("right", where, (0, r), tip))
        if w:
            plot.add(plot.box("wrong", where, (r, r + w), tip))
    text = f"Right and wrong predictions, stacked, in {len(right)} bins of confidence; the fullest holds {count(most)}."
    return plot.render(ident, f"Histogram of the confidence of {isolated(name)}", text)


@dataclass(frozen=True)
class Series:
    """A curve on the shared axis: whose it is and how it looks."""

    model: Part
    curve: Part
    colour: int
    dash: int
    label: str

    @property
    def look(self) -> str:
        """The classes that give it its colour and line pattern."""
        return f"{coloured(self.colour)} d{self.dash % DASHES}"


def all_series(models: Sequence[Part]) -> list[Series]:
    """Every curve of every file: with several files the colour tells the file and the pattern the score."""
    several = len(models) > 1
    found = []
    for m, model in enumerate(models):
        for k, curve in enumerate(model.get("curves") or ()):
            label = str(curve.get("label") or curve.get("score"))
            shown = f"{isolated(model['name'])}: {isolated(label)}" if several else isolated(label)
            found.append(Series(model, curve, m if several else k, k, shown))
    return found


def risk_coverage(ident: str, series: Sequence[Series], chosen: tuple[int, int], unit: str) -> str:
    """All curves on one axis, the interval of the chosen one, and a marker that the page's script moves."""
    plot = Plot(640, 400, (0, 1), (0, risk_top([s.curve for s in series])), margin=(66, 16, 14, 50))
    plot.axes(f"coverage: share of {unit} answered", "risk: error rate of the answers", round_percent, round_percent)
    bands, lines = [], []
    for k, s in enumerate(series):
        on = " on" if k == chosen[0] else ""
        points = _known(s.curve["coverage"], s.curve["risk"])
        low, high = (_known(s.curve["coverage"], s.curve[f"risk_{end}"]) for end in ("low", "high"))
        if low and high:
            shape = plot.path([*high, *reversed(low)]) + "Z"
            bands.append(f'<path class="band {s.look}{on}" data-k="{k}" d="{shape}"/>')
        lines.append(f'<path class="curve {s.look}{on}" data-k="{k}" d="{plot.path(points)}"/>')
    plot.add(plot.clipped(*bands, *lines))
    curve = series[chosen[0]].curve
    x, y = plot.at_x(curve["coverage"][chosen[1]]), plot.at_y(min(plot.y[1], finite(curve["risk"][chosen[1]]) or 0.0))
    left, right, top, bottom = (short(v) for v in plot.margin)
    foot = short(plot.height - plot.margin[3])
    plot.add(
        f'<g class="marker" data-left="{left}" data-right="{right}" data-top="{top}" data-bottom="{bottom}" '
        f'data-most="{plot.y[1]:.9g}"><line class="guide" x1="{short(x)}" y1="{top}" x2="{short(x)}" y2="{foot}"/>'
        f'<circle cx="{short(x)}" cy="{short(y)}" r="6"/></g>'
    )
    text = (
        f"{len(series)} curve{'s' if len(series) > 1 else ''} of risk against coverage: the further down, the better. "
        "The table below holds the risks at some coverages."
    )
    return plot.render(ident, "Risk-coverage curves", text, "chart wide")


def _known(xs: Sequence[float], ys: Sequence[float | None]) -> list[Point]:
    return [(x, float(y)) for x, y in zip(xs, ys, strict=True) if y is not None and finite(y) is not None]


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
        chosen = [
            (x, float(y))
            for x, y, r in zip(points["msp"], points["max_logit"], points["right"], strict=True)
            if bool(r) == (word == "right") and finite(y) is not None
        ]
        # A stroke of no length with round ends is a dot: one path for them all.
        dots = "".join(f"M{short(plot.at_x(x))} {short(plot.at_y(y))}h0" for x, y in chosen)
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
    """Places, means and spreads where there are any."""
    found = zip(part["msp"], part[f"{word}_mean"], part[f"{word}_spread"], strict=True)
    return [(x, float(m), finite(s) or 0.0) for x, m, s in found if finite(m) is not None]


def interval_bar(value: float | None, low: float | None, high: float | None, across: Point, colour: int = 0) -> str:
    """A value and its interval as a bar in a table cell, or the room of one; `bar_legend` says how to read it."""
    value, low, high = finite(value), finite(low), finite(high)
    if value is None or across[0] == across[1]:
        return '<span class="ib"></span>'
    width, tall = _BAR

    def at(v: float) -> str:
        return short(4 + (min(max(v, across[0]), across[1]) - across[0]) / (across[1] - across[0]) * (width - 8))

    parts = f'<path class="track" d="M4 6H{width - 4:g}"/>'
    if across[0] <= 0 <= across[1]:
        parts += f'<path class="zero" d="M{at(0)} 1v{tall - 2:g}"/>'
    if low is not None and high is not None:
        parts += f'<path d="M{at(low)} 6H{at(high)}"/>'
    return (
        f'<svg class="ib {coloured(colour)}" viewBox="0 0 {width:g} {tall:g}" aria-hidden="true">{parts}'
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
    known = [v for v in map(finite, values) if v is not None]
    return (min([0.0, *known]), max([0.0, *known]))


def swatch(series: Series) -> str:
    """The look of a curve, for legends."""
    stroke = f'<path class="curve {series.look}" d="M1 5H27"/>'
    return f'<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true">{stroke}</svg>'
