"""A small canvas for inline SVG: two axes, marks in data coordinates, colours by class so that the page's style rules.

Only scaling to pixels happens here. Text keeps the page's font; nothing refers to anything outside the page. Beside the
canvas are what all pages draw: dots of a colour, the small bars of tables, pictures with frames, and signs.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrant.report.text import escape, finite, short_count

if TYPE_CHECKING:
    from calibrant.report.figures.images import Cell

Point = tuple[float, float]
#: The number of colours in the style of the pages.
COLOURS = 7
#: Pictures up to this size are drawn pixel by pixel.
SMALL = 100


@dataclass
class Plot:
    """Marks over two linear axes."""

    width: float  # in its own units, about CSS pixels on a desk
    height: float
    x: Point  # the data range of the horizontal axis
    y: Point
    margin: tuple[float, float, float, float] = (60, 20, 12, 44)  # left, right, top, bottom: for words at the axes
    parts: list[str] = field(default_factory=list)

    def at_x(self, value: float) -> float:
        """Pixels from the left."""
        left, right, _, _ = self.margin
        return left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (self.width - left - right)

    def at_y(self, value: float) -> float:
        """Pixels from the top."""
        _, _, top, bottom = self.margin
        return self.height - bottom - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self.height - top - bottom)

    def add(self, *marks: str) -> None:
        """Append marks; later ones lie on top."""
        self.parts.extend(marks)

    def axes(
        self,
        x_label: str,
        y_label: str,
        x_text: Callable[[float], str],
        y_text: Callable[[float], str],
        *,
        x_ticks: Sequence[tuple[float, str]] | None = None,
        label_at: float | None = None,
    ) -> None:
        """Grid lines, tick words and labels; no grid line where there is no word.

        ``x_ticks`` are values and words instead of round ones; a word without room is left out. ``label_at`` is where
        the label of the horizontal axis stands, in pixels from the top.
        """
        left, right, top, bottom = self.margin
        foot, end = self.height - bottom, self.width - right
        for value in nice_ticks(*self.y, 5):
            y = self.at_y(value)
            if y_text(value):
                self.add(line("grid", left, y, end, y), words("tick end", left - 7, y + 4, y_text(value)))
        free = 0.0
        for value, word in sorted(x_ticks) if x_ticks else [(v, x_text(v)) for v in nice_ticks(*self.x, 5)]:
            x, half = self.at_x(value), 3.6 * len(word)
            self.add(line("tickmark", x, foot, x, foot + 4))
            if not x_ticks or x - half >= free:
                self.add(words("tick middle", x, foot + 18, word))
                free = x + half + 7
        self.add(line("axis", left, foot, end, foot))
        self.add(words("label middle", (left + end) / 2, label_at or self.height - 6, x_label))
        centre = (top + foot) / 2
        turn = f' transform="rotate(-90 13 {short(centre)})"'
        self.add(f'<text class="label middle turned" x="13" y="{short(centre)}"{turn}>{escape(y_label)}</text>')

    def box(self, kind: str, x: Point, y: Point, tip: str = "") -> str:
        """A rectangle between two values of each axis."""
        x0, x1 = sorted((self.at_x(x[0]), self.at_x(x[1])))
        y0, y1 = sorted((self.at_y(y[0]), self.at_y(y[1])))
        geometry = f'x="{short(x0)}" y="{short(y0)}" width="{short(x1 - x0)}" height="{short(y1 - y0)}"'
        return f'<rect class="{kind}" {geometry}>{title(tip)}</rect>' if tip else f'<rect class="{kind}" {geometry}/>'

    def path(self, points: Sequence[Point]) -> str:
        """Path data through the points; points that make no visible difference are left out."""
        return path_data(thinned([(self.at_x(x), self.at_y(y)) for x, y in points], 0.12))

    def clipped(self, *marks: str) -> str:
        """Marks cut at the axes: a nested drawing hides what lies outside it."""
        left, right, top, bottom = self.margin
        width, height = short(self.width - left - right), short(self.height - top - bottom)
        frame = f'x="{short(left)}" y="{short(top)}" width="{width}" height="{height}"'
        view = f"{short(left)} {short(top)} {width} {height}"
        return f'<svg {frame} viewBox="{view}">{"".join(marks)}</svg>'

    def render(self, ident: str, name: str, description: str, kind: str = "chart") -> str:
        """The SVG element, with its name and description for those who do not see it."""
        return (
            f'<svg class="{kind}" id="{ident}" viewBox="0 0 {short(self.width)} {short(self.height)}" role="img" '
            f'aria-labelledby="{ident}-t {ident}-d">'
            f'<title id="{ident}-t">{escape(name)}</title><desc id="{ident}-d">{escape(description)}</desc>'
            f"{''.join(self.parts)}</svg>"
        )


def short(value: float) -> str:
    """A coordinate to a tenth of a pixel."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def thinned(points: Sequence[Point], tolerance: float) -> list[Point]:
    """Fewer points whose line stays within the tolerance of the given one (Douglas and Peucker 1973)."""
    keep = {0, len(points) - 1} if points else set()
    pending = [(0, len(points) - 1)] if len(points) > 2 else []
    while pending:
        start, end = pending.pop()
        (x0, y0), (x1, y1) = points[start], points[end]
        dx, dy, between = x1 - x0, y1 - y0, points[start + 1 : end]
        length = math.hypot(dx, dy)
        if length:
            offsets = [abs(dx * (y - y0) - dy * (x - x0)) / length for x, y in between]
        else:
            offsets = [math.hypot(x - x0, y - y0) for x, y in between]
        farthest = max(offsets, default=0.0)
        if farthest > tolerance:
            at = start + 1 + offsets.index(farthest)
            keep.add(at)
            pending += [(start, at), (at, end)]
    return [points[k] for k in sorted(keep)]


def path_data(points: Sequence[Point]) -> str:
    """Path data through points in pixels."""
    return "".join(f"{'L' if k else 'M'}{short(x)} {short(y)}" for k, (x, y) in enumerate(points))


def line(kind: str, x0: float, y0: float, x1: float, y1: float) -> str:
    """A line in pixels."""
    return f'<line class="{kind}" x1="{short(x0)}" y1="{short(y0)}" x2="{short(x1)}" y2="{short(y1)}"/>'


def words(kind: str, x: float, y: float, text: str) -> str:
    """A text in pixels."""
    return f'<text class="{kind}" x="{short(x)}" y="{short(y)}">{escape(text)}</text>'


def title(text: str) -> str:
    """The text that appears when the pointer rests on a mark."""
    return f"<title>{escape(text)}</title>"


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Round values from low to high, about this many."""
    raw = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * power >= raw * 0.999)
    lowest = math.ceil(low / step - 1e-9)
    return [k * step for k in range(lowest, math.floor(high / step + 1e-9) + 1)]


def whole_count(value: float) -> str:
    """The word at a tick of counts; nothing between whole numbers."""
    return short_count(round(value)) if value == round(value) else ""


def coloured(colour: int) -> str:
    """The class that gives a file its colour; where there are more files than colours, they repeat."""
    return f"s{colour % COLOURS}"


def key(kind: str) -> str:
    """A dot of a colour's class, before a name."""
    return f'<span class="key {kind}"></span>'


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


def framed_picture(cell: Cell, colours: Mapping[str, str], label: str) -> str:
    """A picture with its frames as SVG; the label is HTML."""
    height, width = cell.pixels.shape[:2]
    line = max(width, height) / 90
    marks = []
    for k, (x1, y1, x2, y2) in enumerate(cell.boxes if cell.boxes is not None else ()):
        box = cell.box_names[k] if k < len(cell.box_names) else ""
        marks.append(_frame(x1, y1, x2, y2, f"box-frame {colours.get(box, 's6')}", line))
    if cell.crop is not None:
        marks += [_frame(*cell.crop, kind, line) for kind in ("crop-ground", "crop")]
    is_small = max(width, height) <= SMALL
    pixelated = ' class="pixels"' if is_small else ""
    address = image_address(cell.pixels, "png" if is_small else "jpeg", quality=82)
    return (
        f'<svg class="picture" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f'<image{pixelated} href="{address}" width="{width}" height="{height}"/>{"".join(marks)}</svg>'
    )


def _frame(x1: float, y1: float, x2: float, y2: float, kind: str, line: float) -> str:
    geometry = f'x="{short(x1)}" y="{short(y1)}" width="{short(x2 - x1)}" height="{short(y2 - y1)}"'
    return f'<rect class="{kind}" {geometry} stroke-width="{short(max(line, 0.1))}"/>'


def image_address(pixels: npt.NDArray[np.uint8], kind: str, **options: Any) -> str:
    """The address of a picture whose bytes are in the page."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def icon(kind: str) -> str:
    """A sign from the page's own set; the word beside it says the same."""
    return f'<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><use href="#i-{kind}"/></svg>'


#: The signs, and the hatching of gaps; drawn once per page, shown nowhere themselves.
SYMBOLS = (
    '<svg class="symbols" width="0" height="0" aria-hidden="true"><defs>'
    '<symbol id="i-good" viewBox="0 0 20 20"><circle cx="10" cy="10" r="9"/><path d="M5.5 10.5l3 3 6-7"/></symbol>'
    '<symbol id="i-fair" viewBox="0 0 20 20"><path class="solid" d="M10 1.6L19 17.6H1Z"/>'
    '<path d="M10 7.2v5M10 14.9v.2"/></symbol>'
    '<symbol id="i-poor" viewBox="0 0 20 20"><path class="solid" d="M6.3 1h7.4L19 6.3v7.4L13.7 19H6.3L1 13.7V6.3Z"/>'
    '<path d="M6.8 6.8l6.4 6.4M13.2 6.8l-6.4 6.4"/></symbol>'
    '<symbol id="i-unknown" viewBox="0 0 20 20"><circle cx="10" cy="10" r="9"/>'
    '<path d="M7.4 7.6a2.6 2.6 0 1 1 3.7 2.4c-.8.4-1.1.9-1.1 1.7M10 14.6v.2"/></symbol>'
    '<symbol id="i-info" viewBox="0 0 20 20"><circle cx="10" cy="10" r="9"/><path d="M10 9.2v5M10 5.8v.2"/></symbol>'
    '<symbol id="i-flag" viewBox="0 0 20 20"><path class="solid" d="M5 2h11l-3 4 3 4H6.6v8H5Z"/></symbol>'
    '<pattern id="hatch-over" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatch over" d="M0 0V5"/></pattern>'
    '<pattern id="hatch-under" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<path class="hatch under" d="M0 0V5"/></pattern>'
    "</defs></svg>"
)
