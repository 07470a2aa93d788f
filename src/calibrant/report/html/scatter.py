"""Accuracy against ECE: a mark per run. A method far from all others stands at the border, its value beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibrant.report.document import Part
from calibrant.report.html.comparison_charts import Look, finite_points, methods_text, padded_range, runs_text
from calibrant.report.html.svg import Plot, Point, words
from calibrant.report.text import round_percent, table_percent

#: A method that leaves the others less than this share of an axis is drawn at its border.
SQUEEZED = 0.25


def scatter(ident: str, groups: Sequence[Part], look: Mapping[str, Look]) -> str:
    """A mark per run, of its method's colour and shape."""
    points = {str(g["name"]): finite_points(g) for g in groups}
    x_range, y_range = (limits([[point[k] for point in own] for own in points.values()]) for k in (0, 1))
    plot = Plot(640, 420, x_range, y_range, margin=(66, 20, 14, 50))
    plot.axes("accuracy: the further right, the better", "ECE: the lower, the better", round_percent, round_percent)
    labels: list[Point] = []
    for name, own in points.items():
        outside = []
        for x, y in own:
            nearest = clamped(x, x_range), clamped(y, y_range)
            tip = f"{name}: accuracy {table_percent(x)}, ECE {table_percent(y)}"
            plot.add(look[name].mark(plot.at_x(nearest[0]), plot.at_y(nearest[1]), tip, 5.0))
            if nearest != (x, y):
                outside.append(((x, y), nearest))
        if outside:
            plot.add(*_pointer(plot, name, outside, labels))
    count = sum(map(len, points.values()))
    text = (
        f"{runs_text(count)} of {methods_text(groups)}; good ones lie at the lower right. "
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
