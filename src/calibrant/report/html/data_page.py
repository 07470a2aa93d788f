"""The page of a data set: what stands out, its splits and classes, boxes, and pictures with what was drawn around them.

It draws the document of an inspection and computes nothing beyond shares of counts.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.base.files import PART, check_output, open_regular, remove_leftovers, written_aside
from calibrant.report import html
from calibrant.report.document import Part
from calibrant.report.html.svg import Plot, coloured, framed_picture, key, whole_count, words
from calibrant.report.html.tables import SortedCell, clipped, number_table, sortable
from calibrant.report.text import DASH, TIMES, count, escape, isolated, name, percent, round_percent

if TYPE_CHECKING:
    from calibrant.report.figures.images import Cell

PAGE = "index.html"
#: Identifies a page that `write_data_page` wrote.
GENERATOR = "calibrant data inspect"
#: Places that a finding lists.
_PLACES = 10
#: Classes that have bars of their own; more become a line, the largest first.
NAMED_CLASSES = 30
#: Characters of a class's name beside its bars.
_LONGEST = 17
#: Images with this many boxes or more are drawn together.
_MANY = 10
_LEVELS = {"good": "Nothing skipped, nothing odd", "fair": "Worth a look", "poor": "Look before training"}


@dataclass(frozen=True)
class ContactSheet:
    """Pictures of a split, what is said of them, and the colours of its masks by class."""

    cells: Sequence[Cell]
    text: str
    legend: Mapping[str, tuple[float, float, float]] | None = None


def is_page(path: Path) -> bool:
    """Whether a file is a page that `write_data_page` wrote, which it may therefore overwrite."""
    try:
        with open_regular(path) as file:
            return f'<meta name="generator" content="{GENERATOR}">'.encode() in file.read(2000)
    except (OSError, ValueError):
        return False


def check_page_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier page of ours, before any work is done."""
    check_output(folder, folder=True)
    # What a killed process had begun to write does not count.
    if folder.exists() and not is_page(folder / PAGE) and not all(n.startswith(PART) for n in os.listdir(folder)):
        raise ValueError(
            f"{folder} is not empty and holds no page of calibrant data inspect; name a new folder, or an empty one."
        )


def write_data_page(folder: Path, document: Part, sheets: Mapping[str, ContactSheet]) -> dict[str, str]:
    """Write index.html and the figures of an inspection's document; gives the paths of what was written, by name.

    The page is written first: a folder that has the page is ours when the command is repeated after it was killed.

    Args:
        folder: where to write; it is made.
        document: as ``Inspection.to_json()`` gives it, with ``created``, ``calibrant`` and ``reproduce``.
        sheets: pictures of splits by name.
    """
    from calibrant.report.figures.images import draw_contact_sheet, draw_data_summary  # brings matplotlib along

    check_page_folder(folder)
    with tempfile.TemporaryDirectory(prefix="calibrant-") as drawing:
        figures = {"summary": Path(drawing) / "summary.svg"}
        draw_data_summary(figures["summary"], document["splits"])
        for split, sheet in sheets.items():
            file = figures[f"contact sheet of {split}"] = Path(drawing) / f"contact-sheet-{_file_part(split)}.png"
            draw_contact_sheet(file, sheet.cells, legend=sheet.legend)
        _write(folder / PAGE, document, sheets)
        remove_leftovers(folder)
        for file in figures.values():
            with written_aside(folder / file.name) as aside:
                shutil.copyfile(file, aside)
    return {"page": str(folder / PAGE)} | {title: str(folder / file.name) for title, file in figures.items()}


def _write(path: Path, document: Part, sheets: Mapping[str, ContactSheet]) -> None:
    sections = [_findings(document), _splits(document), _classes(document), _boxes(document)]
    sections += [_pictures(k, split, sheet) for k, (split, sheet) in enumerate(sheets.items())]
    html.write_report(
        path, [*sections, _reproduce(document)], title="What is in this data set?", kind="Calibrant data inspection",
        created=document["created"], top=_headline(document), skip="Skip to the findings", style=html.asset("data.css"),
        generator=GENERATOR,
    )  # fmt: skip


def _headline(document: Part) -> str:
    level = document["level"]
    text = f"<p>{escape(document['text'])}</p>" if document["text"] else ""
    return (
        f"{html.verdict_box(level, _LEVELS[level], escape(document['headline']), text)}"
        f'<ul class="files"><li><span class="file">{name(document["name"])}</span> '
        f'<span class="facts">layout {escape(document["layout"])} · {name(document["root"])}</span></li></ul>'
    )


def _findings(document: Part) -> html.ReportSection:
    items = "".join(
        f'<li class="{level}">{html.level_line(level, word)}'
        f'<p class="title">{escape(issue)}: {count(times)}</p><p>{", ".join(map(name, splits))}</p>'
        f'<p class="evidence">{", ".join(map(name, places[:_PLACES]))}{", ..." * (times > _PLACES)}</p></li>'
        for (level, word, issue, times, places), splits in _merge_findings(document).items()
    )
    lede = '<p class="lede">Skipped samples are not in the data set; odd ones are.</p>'
    body = f'{lede}<ul class="findings">{items}</ul>' if items else '<p class="lede">Nothing stands out.</p>'
    return html.ReportSection("findings", "What stands out", "Findings", body)


def _merge_findings(document: Part) -> dict[tuple[str, str, str, int, tuple[str, ...]], list[str]]:
    """Findings and the splits they are about: one about all of a data set is said once."""
    splits: dict[tuple[str, str, str, int, tuple[str, ...]], list[str]] = {}
    sources = [(split, facts[kind], level, word) for split, facts in document["splits"].items()
               for kind, level, word in (("skipped", "poor", "Skipped"), ("odd", "fair", "Odd"))]  # fmt: skip
    for split, issues, level, word in [*sources, ("across splits", document["across_splits"], "fair", "Odd")]:
        for issue in issues:
            entry = (level, word, issue["what"], issue["times"], tuple(issue["where"]))
            splits.setdefault(entry, []).append(split)
    return dict(sorted(splits.items(), key=lambda item: item[0][0] != "poor"))


def _splits(document: Part) -> html.ReportSection:
    has_boxes = any(facts["boxes"] for facts in document["splits"].values())
    titles = ["Samples", "Classes", "Per class", "Size", *(("Boxes", "Mean objectness") if has_boxes else ())]
    rows = []
    for k, (split, facts) in enumerate(document["splits"].items()):
        counts, boxes = facts["class_counts"].values(), facts["boxes"]
        cells = [
            count(facts["samples"]), count(len(facts["class_counts"] or facts["pixels"])),
            f"{count(min(counts))} to {count(max(counts))}" if counts else DASH, _size(facts["sizes"]),
        ]  # fmt: skip
        if has_boxes:
            cells += [count(boxes["number"]), percent(boxes["mean_objectness"])] if boxes else [DASH, DASH]
        rows.append((f'<div class="named">{key(coloured(k))}{clipped(split)}</div>', cells))
    lede = '<p class="lede">Objectness is the share of an image that objects fill.</p>' if has_boxes else ""
    listing = number_table("tiles counts", "Splits", ("Split", *titles), rows, unseen=True)
    return html.ReportSection("splits", "Splits", "Splits", lede + listing)


def _size(sizes: Mapping[str, int]) -> str:
    if "width_min" in sizes:
        low, high = (f"{sizes[f'width_{end}']} {TIMES} {sizes[f'height_{end}']}" for end in ("min", "max"))
        return low if low == high else f"{low} to {high}"
    return f"{count(sizes['shortest'])} to {count(sizes['longest'])} characters" if sizes else DASH


def _legend(splits: Sequence[str]) -> str:
    """The colours of the splits, if there are several."""
    return html.legend(f"{key(coloured(k))}{clipped(split)}" for k, split in enumerate(splits) if len(splits) > 1)


def _classes(document: Part) -> html.ReportSection | None:
    splits = document["splits"]
    is_share = any(facts["pixels"] for facts in splits.values())
    values = {split: facts["pixels" if is_share else "class_counts"] for split, facts in splits.items()}
    classes = list(dict.fromkeys(label for numbers in values.values() for label in numbers))
    if not classes:
        return None
    objects = {f"Boxes in {split}": facts["boxes"]["by_class"] for split, facts in splits.items()
               if facts["boxes"].get("number")}  # fmt: skip
    rows = []
    for label in classes:
        numbers = [numbers.get(label, 0) for numbers in values.values()]
        cells = [SortedCell(percent(v) if is_share else count(v), v) for v in numbers]
        cells += [SortedCell(count(by_class.get(label, 0)), by_class.get(label, 0)) for by_class in objects.values()]
        rows.append(([SortedCell(clipped(label)), *cells], not all(numbers)))
    columns = [("Class", "text"), *((word, "num") for word in (*splits, *objects))]
    caption = "Marked classes are missing from a split." if any(flagged for _, flagged in rows) else ""
    listing = sortable("classes-table", caption, columns, rows, noun=("class", "classes"))
    caption = f"<p>{'The share of pixels' if is_share else 'How many samples'} of each class, by split.</p>"
    chart = html.figure(draw_balance("balance", values, is_share=is_share), caption)
    body = f'{_legend(list(splits))}<div class="one">{chart}</div>{listing}'
    return html.ReportSection("classes", "Balance of the classes", "Classes", body)


def _boxes(document: Part) -> html.ReportSection | None:
    boxes = {split: facts["boxes"] for split, facts in document["splits"].items() if facts["boxes"].get("number")}
    if not boxes:
        return None
    figures = (
        (draw_boxes_per_image("boxes-per-image", boxes), "Boxes per image"),
        (draw_histograms("area", boxes, "area_histogram", "share of boxes"), "Area of a box"),
        (draw_histograms("objectness", boxes, "objectness_histogram", "share of images"),
         "Objectness: how much of an image all its objects fill"),
    )  # fmt: skip
    panels = "".join(html.figure(drawing, caption) for drawing, caption in figures)
    body = f'{_legend(list(boxes))}<div class="multiples">{panels}</div>{_box_numbers(boxes)}'
    return html.ReportSection("boxes", "Boxes and objectness", "Boxes", body)


def _box_numbers(boxes: Mapping[str, Part]) -> str:
    columns = {
        "Boxes": "number", "Crowds": "crowds", "Without area": "without_area",
        "Images with several boxes": "images_with_several", "With several classes": "images_with_several_classes",
    }  # fmt: skip
    rows = [(clipped(split), [count(part[key]) for key in columns.values()]) for split, part in boxes.items()]
    return number_table("tiles counts", "Boxes by split", ("Split", *columns), rows)


def _pictures(k: int, split: str, sheet: ContactSheet) -> html.ReportSection:
    colours = colours_of(sheet.cells)
    pictures = "".join(f"<li>{captioned_picture(cell, colours)}</li>" for cell in sheet.cells)
    painted = html.painted_legend(
        (label, [round(255 * c) for c in colour]) for label, colour in (sheet.legend or {}).items()
    )
    body = f'<p class="lede">{escape(sheet.text)}</p>{painted}<ul class="sheet">{pictures}</ul>'
    return html.ReportSection(f"pictures-{k}", f"Pictures of {split}", f"Pictures of {split}"[:40], body)


def _reproduce(document: Part) -> html.ReportSection:
    facts = [("Calibrant", document["calibrant"]), ("Date", document["created"]), ("Layout", document["layout"])]
    return html.reproduction(document["reproduce"], facts)


def _file_part(split: str) -> str:
    """A split's name as a part of a file's; one that had to be changed gets a hash, so that no two are the same."""
    plain = re.sub(r"[^\w.+-]+", "-", split)[:60]
    if plain == split:
        return split
    return f"{plain}-{hashlib.blake2b(split.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


# ---- charts and pictures -------------------------------------------------------------------------------------------
def draw_balance(ident: str, values: Mapping[str, Mapping[str, float]], *, is_share: bool) -> str:
    """Samples, or the share of pixels, of each class: bars by split, or a line per split where classes are many."""
    classes = list(dict.fromkeys(label for numbers in values.values() for label in numbers))
    most = max([v for numbers in values.values() for v in numbers.values()] + [0]) or 1
    quantity, tick = ("share of pixels", round_percent) if is_share else ("samples", whole_count)
    if len(classes) <= NAMED_CLASSES:
        room = max(17, 7 * len(values) + 5)  # pixels of a class
        plot = Plot(400, room * len(classes) + 58, (0, most * 1.03), (0, len(classes)), margin=(126, 20, 8, 50))
        plot.axes(quantity, "", tick, lambda _: "")
        for row, label in enumerate(reversed(classes)):
            plot.add(*_class_bars(plot, row, label, values, is_share=is_share))
    else:
        plot = Plot(400, 300, (1, len(classes)), (0, most * 1.05))
        plot.axes("classes, the largest first", quantity, whole_count, tick)
        for k, numbers in enumerate(values.values()):
            ordered = sorted(numbers.values(), reverse=True)
            plot.add(f'<path class="curve {coloured(k)}" d="{plot.path(list(enumerate(ordered, 1)))}"/>')
    text = (
        f"{quantity.capitalize()} of {count(len(classes))} classes in {count(len(values))} splits; the table has them."
    )
    return plot.render(ident, f"{quantity.capitalize()} of each class", text)


def _class_bars(
    plot: Plot, row: int, label: str, values: Mapping[str, Mapping[str, float]], *, is_share: bool
) -> Iterator[str]:
    """The name of a class, and its bar in each split."""
    short_label = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
    yield words("tick end", plot.margin[0] - 7, plot.at_y(row + 0.5) + 4, isolated(short_label))
    thick = 0.8 / len(values)
    for k, (split, numbers) in enumerate(values.items()):
        value, at = numbers.get(label, 0), row + 0.9 - k * thick
        amount = percent(value) if is_share else f"{count(value)} samples"
        tip = f"{isolated(label)}, {isolated(split)}: {amount}"
        yield plot.box(f"filled {coloured(k)}", (0, value), (at - thick, at), tip)


def draw_boxes_per_image(ident: str, boxes: Mapping[str, Part]) -> str:
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


def draw_histograms(ident: str, boxes: Mapping[str, Part], series: str, y_label: str) -> str:
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


def captioned_picture(cell: Cell, colours: Mapping[str, str]) -> str:
    """A picture with its boxes in the colours of their classes, and its crop as a dashed frame, with its caption."""
    lines = [escape(text) for text in cell.caption.split("\n")]
    objects = "".join(f"<span>{key(colours[label])}{name(label)}</span>" for label in dict.fromkeys(cell.box_names))
    return (
        f'<figure>{framed_picture(cell, colours, lines[0])}<figcaption><span class="says">{lines[0]}</span>'
        f"{''.join(f'<span>{text}</span>' for text in lines[1:])}{objects}</figcaption></figure>"
    )


def colours_of(cells: Iterable[Cell]) -> dict[str, str]:
    """A colour for every class whose boxes are drawn; where there are more classes than colours, they repeat."""
    labels = sorted({label for cell in cells for label in cell.box_names})
    return {label: coloured(k) for k, label in enumerate(labels)}
