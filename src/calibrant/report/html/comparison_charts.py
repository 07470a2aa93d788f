"""Charts of several methods as inline SVG, and the look of a method: one colour, dash and mark on all of them.

Every number in them comes from the document; only the positions of lines and marks are worked out here. In the chart of
accuracy against ECE a method far from all others stands at the border, its value beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibrant.metrics import METRICS, base_name, describe
from calibrant.report.document import Part, highest_risk
from calibrant.report.html.svg import Plot, Point, nice_ticks, path_data, reach, short, title, words
from calibrant.report.text import (
    MINUS,
    count,
    difference,
    escape,
    finite,
    isolated,
    quantity,
    round_percent,
    table_percent,
)

#: The numbers of colours and of line patterns in the page's style, and of marks drawn here.
COLOURS, DASHES, MARKS = 14, 4, 7
#: With more lines than this their shades would cover each other: they appear when one points at a method.
CROWD = 5
_PLUS = ((-.4, -1.2), (.4, -1.2), (.4, -.4), (1.2, -.4), (1.2, .4), (.4, .4), (.4, 1.2), (-.4, 1.2), (-.4, .4),
         (-1.2, .4), (-1.2, -.4), (-.4, -.4))  # fmt: skip
_SHAPES: tuple[tuple[Point, ...], ...] = (
    (),  # a circle
    ((-.9, -.9), (.9, -.9), (.9, .9), (-.9, .9)),
    ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    ((0, -1.25), (1.2, .9), (-1.2, .9)),
    ((0, 1.25), (1.2, -.9), (-1.2, -.9)),
    _PLUS,
    tuple(((x - y) * math.sqrt(0.5), (x + y) * math.sqrt(0.5)) for x, y in _PLUS),
)  # fmt: skip
_SETS = {"val": "validation", "train": "training", "test": "test"}
#: A method that leaves the others less than this share of an axis is drawn at its border.
SQUEEZED = 0.25


@dataclass(frozen=True)
class Look:
    """How a method looks wherever it is drawn, by its index among the methods.

    Variants of a method have its colour, and another dash and filling.
    """

    index: int
    variant: int = 0

    @property
    def colour(self) -> str:
        """The class of its colour."""
        return f"s{self.index % COLOURS}"

    @property
    def line(self) -> str:
        """The classes of its lines; a second round of the colours has other dashes."""
        return f"{self.colour} d{(self.index + self.index // COLOURS + self.variant) % DASHES}"

    def mark(self, x: float, y: float, tip: str = "", size: float = 4.2) -> str:
        """Its mark, in pixels: seven shapes, solid and then hollow."""
        kind = f"mark {'hollow ' if (self.index // MARKS + self.variant) % 2 else ''}drawn {self.colour}"
        shape = _SHAPES[(self.index + self.index // COLOURS + self.variant // 2) % MARKS]
        path = path_data([(x + size * dx, y + size * dy) for dx, dy in shape])
        if not shape:
            arc = f"a{short(size)} {short(size)} 0 1 0"
            path = f"M{short(x - size)} {short(y)}{arc} {short(2 * size)} 0{arc} {short(-2 * size)} 0"
        path += "Z"
        return f'<path class="{kind}" d="{path}">{title(tip) if tip else ""}</path>'


def looks(names: Sequence[str], methods: Mapping[str, str] | None = None) -> dict[str, Look]:
    """One look per name, in order of appearance; names of one method, as ``methods`` has it, share its colour."""
    method_of = {name: (methods or {}).get(name, name) for name in names}
    indices = {method: k for k, method in enumerate(dict.fromkeys(method_of.values()))}
    variants: dict[str, int] = {}
    by_name = {}
    for name, method in method_of.items():
        # A method by its own name looks as the first of its variants does.
        by_name[name] = Look(indices[method], 0 if name == method else variants.setdefault(method, 0))
        variants[method] = variants.get(method, 0) + (name != method)
    return by_name


def swatch(look: Look, kind: str) -> str:
    """The look of a line or of a mark, for legends."""
    shape = f'<path class="curve {look.line}" d="M1 6H35"/>' if kind == "line" else look.mark(18, 6)
    return f'<svg class="swatch" viewBox="0 0 36 12" aria-hidden="true">{shape}</svg>'


def unit_of(metric: str) -> str:
    """The unit of a metric of the training's log or of a set, ``"number"`` for losses."""
    key = _split(metric)[1]
    return describe(key).unit if base_name(key) in METRICS else "number"


def label_of(metric: str) -> str:
    """A metric's name in words: ``"val_ece"`` is "ECE (validation)"."""
    subset, key = _split(metric)
    label = describe(key).label if base_name(key) in METRICS else key
    return f"{label} ({_SETS[subset]})" if subset else label


def _split(metric: str) -> tuple[str, str]:
    """The set that a name of the training's log begins with, and the metric."""
    prefix, _, key = metric.partition("_")
    return (prefix, key) if prefix in _SETS and key else ("", metric)


def numbers_of(values: Iterable[Any]) -> list[float]:
    """Those of the values that can be drawn."""
    numbers = (finite(v) for v in values if not isinstance(v, str))
    return [v for v in numbers if v is not None]


def padded_range(values: Sequence[float], bounds: Point = (-math.inf, math.inf)) -> Point:
    """The range of an axis: all of the values and a little room, within the bounds."""
    low, high = min(values), max(values)
    pad = 0.07 * (high - low) or max(0.05 * abs(low), 0.005)
    return max(bounds[0], low - pad), min(bounds[1], high + pad)


def _height(values: Sequence[float], metric: str) -> Point:
    return padded_range(values, (0.0, 1.0) if unit_of(metric) == "share" else (-math.inf, math.inf))


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("-", MINUS)


def _text_of(metric: str) -> Callable[[float], str]:
    return round_percent if unit_of(metric) == "share" else _tick


def _left_margin(across: Point, text: Callable[[float], str]) -> float:
    """Room at the left for the words at the ticks, as wide as a narrow column prints them, and for the label."""
    return max(66.0, 30 + 8.3 * max(len(text(v)) for v in nice_ticks(*across, 5)))


def ceiling(curves: Sequence[Part]) -> float:
    """Where the axis of risks ends: at the first tick above them all, but for the first few samples, which jump."""
    highest = highest_risk(curves)
    step = nice_ticks(0, highest, 5)[1]
    return min(1.0, math.ceil(highest / step - 1e-9) * step)


def is_cut_off(curves: Sequence[Part]) -> bool:
    """Whether a curve leaves the chart of `risk_coverage`."""
    end = ceiling(curves) + 1e-9
    return any(risk > end for curve in curves for risk in numbers_of(curve["risk"]))


def risk_coverage(ident: str, curves: Sequence[Part], look: Mapping[str, Look], unit: str) -> str:
    """One line per method: the error rate of the answers against the share answered."""
    plot = Plot(640, 420, (0, 1), (0, ceiling(curves)), margin=(66, 16, 14, 50))
    plot.axes(f"coverage: share of {unit} answered", "risk: error rate of the answers", round_percent, round_percent)
    plot.add(plot.clipped(*(_line(plot, c, "coverage", "risk", look[str(c["name"])]) for c in curves)))
    text = (
        f"One line for each of {counted(len(curves), 'method')}; the further down, the better. "
        "The table below holds the risks at some coverages."
    )
    return plot.render(ident, "Risk-coverage curves", text, "chart wide")


def _line(plot: Plot, part: Part, x: str, y: str, look: Look) -> str:
    points = finite_points(zip(part[x], part[y], strict=True))
    if len(points) == 1:
        return look.mark(plot.at_x(points[0][0]), plot.at_y(points[0][1]), part["name"])
    return f'<path class="curve drawn {look.line}" d="{plot.path(points)}">{title(part["name"])}</path>'


def finite_points(pairs: Iterable[Any]) -> list[Point]:
    """The points that can be drawn."""
    numbers = ((finite(x), finite(y)) for x, y in pairs)
    return [(x, y) for x, y in numbers if x is not None and y is not None]


def training(ident: str, metric: str, series: Sequence[Part], look: Mapping[str, Look]) -> str:
    """A metric by epoch: a line per method, and a shade from its lowest to its highest."""
    # Shades that show at a touch only may end at the frame, rather than leave most of it empty.
    keys = ("mean", "low", "high") if len(series) <= CROWD else ("mean",)
    values = numbers_of(v for s in series for k in keys for v in s.get(k) or ())
    epochs = numbers_of(e for s in series for e in s["epochs"])
    x = (min(epochs), max(epochs)) if min(epochs) < max(epochs) else (epochs[0] - 0.5, epochs[0] + 0.5)
    y = _height(values, metric)
    plot = Plot(480, 340, x, y, margin=(_left_margin(y, _text_of(metric)), 16, 14, 46))
    plot.axes("epoch", label_of(metric), lambda v: _tick(v) if v == round(v) else "", _text_of(metric))
    shades = [_shade(plot, s, look[str(s["name"])]) for s in series]
    plot.add(plot.clipped(*shades, *(_line(plot, s, "epochs", "mean", look[str(s["name"])]) for s in series)))
    text = (
        f"One line for each of {counted(len(series), 'method')} over epochs {_tick(min(epochs))} to "
        f"{_tick(max(epochs))}. The table below holds the values at the end."
    )
    return plot.render(ident, f"{label_of(metric)} in training", text)


def _shade(plot: Plot, part: Part, look: Look) -> str:
    if not (part.get("low") and part.get("high")):
        return ""
    series = [[finite(v) for v in part[k]] for k in ("epochs", "low", "high")]
    band = [(e, a, b) for e, a, b in zip(*series, strict=True) if e is not None and a is not None and b is not None]
    if len(band) < 2:
        return ""
    shape = plot.path([*((e, b) for e, _, b in band), *((e, a) for e, a, _ in reversed(band))])
    return f'<path class="shade drawn {look.colour}" d="{shape}Z"/>'


def ablation(ident: str, part: Part, look: Look) -> str:
    """A metric over the values of a parameter: means, and one standard deviation to either side of several runs."""
    points, metric, parameter = finite_values(part), str(part["metric"]), str(part["parameter"])
    positions, unit = _positions([value for value, *_ in points]), unit_of(metric)
    y = _height([v for _, mean, std, _ in points for v in (mean - std, mean + std)], metric)
    plot = Plot(400, 290, padded_range(positions), y, margin=(_left_margin(y, _text_of(metric)), 20, 12, 46))
    ticks = [(x, _word(value)) for x, (value, *_) in zip(positions, points, strict=True)]
    plot.axes(parameter, label_of(metric), _tick, _text_of(metric), x_ticks=ticks)
    marks = []
    for x, (value, mean, std, runs) in zip(map(plot.at_x, positions), points, strict=True):
        spread = f" ± {quantity(std, unit)}" if std else ""
        number = "runs unknown" if runs is None else counted(runs, "run")
        tip = f"{parameter} = {_word(value)}: {quantity(mean, unit)}{spread}, {number}"
        if std:
            low, high = short(plot.at_y(mean - std)), short(plot.at_y(mean + std))
            marks.append(f'<path class="reach {look.colour}" d="M{short(x)} {low}V{high}"/>')
        marks.append(look.mark(x, plot.at_y(mean), tip, 4.8))
    course = plot.path([(x, mean) for x, (_, mean, _, _) in zip(positions, points, strict=True)])
    plot.add(plot.clipped(f'<path class="curve {look.colour}" d="{course}"/>'), *marks)
    spreads = ", with spreads" if any(std for *_, std, _ in points) else ""
    text = f"{counted(len(points), 'value')} of {parameter}{spreads}. The table below holds the numbers."
    return plot.render(ident, f"{label_of(metric)} of {isolated(part['name'])} by {isolated(parameter)}", text)


def finite_values(part: Part) -> list[tuple[object, float, float, int | None]]:
    """Value, mean, standard deviation (0 of a single run) and number of runs, where there is a mean."""
    rows = [(v, finite(mean), finite(std), runs) for v, mean, std, runs in part["points"]]
    return [(v, mean, std or 0.0, runs) for v, mean, std, runs in rows if mean is not None]


def counted(number: int, noun: str) -> str:
    """A number of things: "1 run", "1,200 runs"."""
    return f"{count(number)} {noun}{'s' * (number != 1)}"


def _word(value: object) -> str:
    return _tick(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _positions(values: Sequence[object]) -> list[float]:
    """Where values lie on the axis: by size, by magnitude if they span many, in their order if they are words."""
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    if len(numbers) < len(values):
        return [float(k) for k in range(len(values))]
    wide = min(numbers) > 0 and max(numbers) >= 20 * min(numbers)
    return [math.log10(v) for v in numbers] if wide else numbers


def strip(effect: Part, unit: str) -> str:
    """An effect in a line of its own: zero, the difference of every seed, their mean and its interval."""
    mean, low, high = finite(effect.get("mean")), finite(effect.get("low")), finite(effect.get("high"))
    values = numbers_of(effect.get("values") or ())
    across = reach([mean, low, high, *values])
    if across[0] == across[1]:
        return ""
    width, middle = 220.0, 13.0

    def at(value: float) -> str:
        return short(7 + (value - across[0]) / (across[1] - across[0]) * (width - 14))

    marks = f'<path class="track" d="M4 {middle:g}H{width - 4:g}"/><path class="zero" d="M{at(0)} 2V24"/>'
    if low is not None and high is not None:
        marks += f'<path class="wide" d="M{at(low)} {middle:g}H{at(high)}"/>'
    marks += "".join(f'<circle class="each" cx="{at(v)}" cy="{middle:g}" r="3.4"/>' for v in values)
    if mean is not None:
        marks += f'<path class="centre" d="M{at(mean)} 5V21"/>'
    differences = ", ".join(difference(v, unit) for v in values)
    tip = f"differences of {counted(len(values), 'seed')}: {differences}" if values else "mean difference"
    size = f'viewBox="0 0 {width:g} 26"'
    return f'<svg class="strip" {size} role="img" aria-label="{escape(tip)}">{title(tip)}{marks}</svg>'


def scatter(ident: str, groups: Sequence[Part], look: Mapping[str, Look]) -> str:
    """A mark per run, of its method's colour and shape."""
    points = {str(g["name"]): finite_points(g["points"]) for g in groups}
    x_range, y_range = (limits([[point[k] for point in pairs] for pairs in points.values()]) for k in (0, 1))
    plot = Plot(640, 420, x_range, y_range, margin=(66, 20, 14, 50))
    plot.axes("accuracy: the further right, the better", "ECE: the lower, the better", round_percent, round_percent)
    labels: list[Point] = []
    for name, pairs in points.items():
        outside = []
        for x, y in pairs:
            nearest = clamped(x, x_range), clamped(y, y_range)
            tip = f"{name}: accuracy {table_percent(x)}, ECE {table_percent(y)}"
            plot.add(look[name].mark(plot.at_x(nearest[0]), plot.at_y(nearest[1]), tip, 5.0))
            if nearest != (x, y):
                outside.append(((x, y), nearest))
        if outside:
            plot.add(*_pointer(plot, name, outside, labels))
    runs = counted(sum(map(len, points.values())), "run")
    text = (
        f"{runs} of {counted(len(groups), 'method')}; good ones lie at the lower right. "
        f"{'An arrow at the border points to runs outside it. ' if labels else ''}The table below holds the numbers."
    )
    return plot.render(ident, "Accuracy against ECE", text, "chart wide")


def limits(groups: Sequence[Sequence[float]]) -> Point:
    """The range of an axis: of all methods but those that would squeeze the others."""
    near = [list(values) for values in groups if values]
    while len(near) > 3:  # of a few methods, none is the odd one
        rests = [near[:k] + near[k + 1 :] for k in range(len(near))]
        tightest = min(rests, key=_width)
        if _width(tightest) >= SQUEEZED * _width(near):
            break
        near = tightest
    return padded_range([value for values in near for value in values], (0, 1))


def _width(groups: Sequence[Sequence[float]]) -> float:
    values = [value for group in groups for value in group]
    return max(values) - min(values)


def clamped(value: float, ends: Point) -> float:
    """The value, or the end of the range that it lies beyond."""
    return min(max(value, ends[0]), ends[1])


def _pointer(plot: Plot, name: str, outside: Sequence[tuple[Point, Point]], labels: list[Point]) -> list[str]:
    """An arrow outwards beside a method's marks at the border, and where they really lie; labels keep apart."""
    (x, y), (near_x, near_y) = outside[0]
    is_up, is_down, is_left = y > near_y, y < near_y, x < near_x
    arrow = "↑" if is_up else "↓" if is_down else "←" if is_left else "→"
    axis = 1 if is_up or is_down else 0
    values = sorted(true[axis] for true, _ in outside)
    ends = list(dict.fromkeys(table_percent(value) for value in (values[0], values[-1])))
    at_x, at_y = plot.at_x(near_x), plot.at_y(near_y)
    row = at_y + (18 if is_up else -10)
    while any(abs(row - label_row) < 14 and abs(at_x - label_x) < 190 for label_x, label_row in labels):
        row += 14 if is_up else -14
    labels.append((at_x, row))
    is_right_half = at_x > plot.width / 2
    text = f"{arrow} {name}: {'ECE' if axis else 'accuracy'} {' to '.join(ends)}"
    return [words(f"tick {'end' if is_right_half else 'start'}", at_x + (-8 if is_right_half else 8), row, text)]
