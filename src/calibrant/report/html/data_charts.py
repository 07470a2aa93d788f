"""Charts of a data set as inline SVG: classes, boxes, objectness; and its pictures with boxes and crops drawn in."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from calibrant.report.document import Part
from calibrant.report.html.charts import coloured, key
from calibrant.report.html.svg import Plot, short, words
from calibrant.report.text import count, escape, isolated, name, percent, round_percent, short_count

if TYPE_CHECKING:
    from calibrant.report.figures.data import Cell

#: Classes that have bars of their own; more become a line, the largest first.
NAMED_CLASSES = 30
#: Characters of a class's name beside its bars.
_LONGEST = 17
#: Images with this many boxes or more are drawn together.
_MANY = 10
#: Pictures up to this size are drawn pixel by pixel.
_SMALL = 100


def balance(ident: str, values: Mapping[str, Mapping[str, float]], *, is_share: bool) -> str:
    """Samples, or the share of pixels, of each class: bars by split, or a line per split where classes are many."""
    classes = list(dict.fromkeys(name for numbers in values.values() for name in numbers))
    most = max([v for numbers in values.values() for v in numbers.values()] + [0]) or 1
    quantity, tick = ("share of pixels", round_percent) if is_share else ("samples", _whole)
    draw = _class_bars if len(classes) <= NAMED_CLASSES else _class_lines
    plot = draw(values, classes, most, quantity, tick)
    text = (
        f"{quantity.capitalize()} of {count(len(classes))} classes in {count(len(values))} splits; the table has them."
    )
    return plot.render(ident, f"{quantity.capitalize()} of each class", text)


def _whole(value: float) -> str:
    return short_count(round(value)) if value == round(value) else ""


def _class_bars(
    values: Mapping[str, Mapping[str, float]],
    classes: Sequence[str],
    most: float,
    quantity: str,
    tick: Callable[[float], str],
) -> Plot:
    room = max(17, 7 * len(values) + 5)  # pixels of a class
    plot = Plot(400, room * len(classes) + 58, (0, most * 1.03), (0, len(classes)), margin=(126, 20, 8, 50))
    plot.axes(quantity, "", tick, lambda _: "")
    thick = 0.8 / len(values)
    for row, label in enumerate(reversed(classes)):
        short_label = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
        plot.add(words("tick end", plot.margin[0] - 7, plot.at_y(row + 0.5) + 4, isolated(short_label)))
        for k, (split, numbers) in enumerate(values.items()):
            value, at = numbers.get(label, 0), row + 0.9 - k * thick
            tip = f"{isolated(label)}, {isolated(split)}: {_describe(value, quantity)}"
            plot.add(plot.box(f"filled {coloured(k)}", (0, value), (at - thick, at), tip))
    return plot


def _describe(value: float, quantity: str) -> str:
    return percent(value) if quantity.startswith("share") else f"{count(value)} {quantity}"


def _class_lines(
    values: Mapping[str, Mapping[str, float]],
    classes: Sequence[str],
    most: float,
    quantity: str,
    tick: Callable[[float], str],
) -> Plot:
    plot = Plot(400, 300, (1, len(classes)), (0, most * 1.05))
    plot.axes("classes, the largest first", quantity, _whole, tick)
    for k, numbers in enumerate(values.values()):
        ordered = sorted(numbers.values(), reverse=True)
        plot.add(f'<path class="curve {coloured(k)}" d="{plot.path(list(enumerate(ordered, 1)))}"/>')
    return plot


def boxes_per_image(ident: str, boxes: Mapping[str, Part]) -> str:
    """The share of images with 0, 1, 2, ... boxes, by split."""
    shares = {split: _by_number(part["images_by_number"]) for split, part in boxes.items()}
    most = max(max(numbers) for numbers in shares.values())
    plot = Plot(400, 300, (-0.6, _MANY + 0.6), (0, most * 1.05 or 1))
    ticks = [(n, f"{n}" if n < _MANY else f"{_MANY}+") for n in range(_MANY + 1)]
    plot.axes("boxes", "share of images", str, round_percent, x_ticks=ticks)
    thick = 0.8 / len(shares)
    for k, (split, numbers) in enumerate(shares.items()):
        for n, share in enumerate(numbers):
            at, tip = n - 0.4 + k * thick, f"{isolated(split)}, {ticks[n][1]} boxes: {percent(share)} of the images"
            if share:
                plot.add(plot.box(f"filled {coloured(k)}", (at, at + thick), (0, share), tip))
    return plot.render(ident, "Boxes per image", "The share of images with each number of boxes.")


def _by_number(images_by_number: Mapping[str, int]) -> list[float]:
    images = [0] * (_MANY + 1)
    for number, times in images_by_number.items():
        images[min(int(number), _MANY)] += times
    total = sum(images) or 1
    return [times / total for times in images]


def histograms(ident: str, boxes: Mapping[str, Part], series: str, y_label: str) -> str:
    """A histogram over shares of the image as an outline per split."""
    shares = {split: [n / (sum(part[series]) or 1) for n in part[series]] for split, part in boxes.items()}
    plot = Plot(400, 300, (0, 1), (0, max(max(numbers) for numbers in shares.values()) * 1.05 or 1))
    plot.axes("share of the image", y_label, round_percent, round_percent)
    for k, (split, numbers) in enumerate(shares.items()):
        edges = boxes[split]["edges"]
        outline = [(edges[0], 0.0)]
        for low, high, share in zip(edges, edges[1:], numbers, strict=False):
            outline += [(low, share), (high, share)]
        outline.append((edges[-1], 0.0))
        plot.add(f'<path class="curve {coloured(k)} d{k % 4}" d="{plot.path(outline)}"/>')
    return plot.render(ident, "Share of the image", f"The {y_label} by share of the image, an outline per split.")


def picture(cell: Cell, colours: Mapping[str, str]) -> str:
    """A picture with its boxes in the colours of their classes, and its crop as a dashed frame, with its caption."""
    lines = [escape(text) for text in cell.caption.split("\n")]
    objects = "".join(f"<span>{key(colours[label])}{name(label)}</span>" for label in dict.fromkeys(cell.box_names))
    return (
        f'<figure>{framed_picture(cell, colours, lines[0])}<figcaption><span class="says">{lines[0]}</span>'
        f"{''.join(f'<span>{text}</span>' for text in lines[1:])}{objects}</figcaption></figure>"
    )


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
    pixelated = ' class="pixels"' if max(width, height) <= _SMALL else ""
    return (
        f'<svg class="picture" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f'<image{pixelated} href="{_data_address(cell)}" width="{width}" height="{height}"/>{"".join(marks)}</svg>'
    )


def _frame(x1: float, y1: float, x2: float, y2: float, kind: str, line: float) -> str:
    geometry = f'x="{short(x1)}" y="{short(y1)}" width="{short(x2 - x1)}" height="{short(y2 - y1)}"'
    return f'<rect class="{kind}" {geometry} stroke-width="{short(max(line, 0.1))}"/>'


def _data_address(cell: Cell) -> str:
    from PIL import Image

    file, kind = io.BytesIO(), "png" if max(cell.pixels.shape[:2]) <= _SMALL else "jpeg"
    Image.fromarray(cell.pixels).save(file, kind, quality=82)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def colours_of(cells: Iterable[Cell]) -> dict[str, str]:
    """A colour for every class whose boxes are drawn; where there are more classes than colours, they repeat."""
    labels = sorted({label for cell in cells for label in cell.box_names})
    return {label: coloured(k) for k, label in enumerate(labels)}
