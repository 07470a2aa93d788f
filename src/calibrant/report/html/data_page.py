"""The page of a data set: what stands out, its splits and classes, boxes, and pictures with what was drawn around them.

It draws the document of an inspection and computes nothing beyond shares of counts.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._files import PART, check_output, open_regular, remove_leftovers, written_aside
from calibrant.report.document import Part
from calibrant.report.html import data_charts as charts
from calibrant.report.html.charts import coloured, key
from calibrant.report.html.layout import ReportSection, asset, command_box, level_line, terms, verdict_box, write_report
from calibrant.report.html.sorted_tables import SortedCell, sortable
from calibrant.report.html.tables import clipped, heads, numeric, table
from calibrant.report.text import DASH, TIMES, count, escape, name, percent

if TYPE_CHECKING:
    from calibrant.report.figures.data import Cell

PAGE = "index.html"
#: Identifies a page that `write_data_page` wrote.
GENERATOR = "calibrant data inspect"
#: Places that a finding lists.
_PLACES = 10
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
    from calibrant.report.figures.data import draw_contact_sheet, draw_data_summary  # brings matplotlib along

    check_page_folder(folder)
    with tempfile.TemporaryDirectory(prefix="calibrant-") as drawing:
        figures = {"summary": Path(drawing) / "summary.svg"}
        draw_data_summary(figures["summary"], document["splits"])
        for split, sheet in sheets.items():
            figure = figures[f"contact sheet of {split}"] = Path(drawing) / f"contact-sheet-{_file_part(split)}.png"
            draw_contact_sheet(figure, sheet.cells, legend=sheet.legend)
        _write(folder / PAGE, document, sheets)
        remove_leftovers(folder)
        for figure in figures.values():
            with written_aside(folder / figure.name) as aside:
                shutil.copyfile(figure, aside)
    return {"page": str(folder / PAGE)} | {title: str(folder / figure.name) for title, figure in figures.items()}


def _write(path: Path, document: Part, sheets: Mapping[str, ContactSheet]) -> None:
    sections = [_findings(document), _splits(document), _classes(document), _boxes(document)]
    sections += [_pictures(k, split, sheet) for k, (split, sheet) in enumerate(sheets.items())]
    write_report(
        path, [*sections, _reproduce(document)], title="What is in this data set?", kind="Calibrant data inspection",
        created=document["created"], top=_headline(document), skip="Skip to the findings", style=asset("data.css"),
        generator=GENERATOR,
    )  # fmt: skip


def _headline(document: Part) -> str:
    level = document["level"]
    text = f"<p>{escape(document['text'])}</p>" if document["text"] else ""
    return (
        f"{verdict_box(level, _LEVELS[level], escape(document['headline']), text)}"
        f'<ul class="files"><li><span class="file">{name(document["name"])}</span> '
        f'<span class="facts">layout {escape(document["layout"])} · {name(document["root"])}</span></li></ul>'
    )


def _findings(document: Part) -> ReportSection:
    items = "".join(
        f'<li class="{level}">{level_line(level, word)}'
        f'<p class="title">{escape(issue)}: {count(times)}</p><p>{", ".join(map(name, splits))}</p>'
        f'<p class="evidence">{", ".join(map(name, places[:_PLACES]))}{", ..." * (times > _PLACES)}</p></li>'
        for (level, word, issue, times, places), splits in _merge_findings(document).items()
    )
    lede = '<p class="lede">Skipped samples are not in the data set; odd ones are.</p>'
    body = f'{lede}<ul class="findings">{items}</ul>' if items else '<p class="lede">Nothing stands out.</p>'
    return ReportSection("findings", "What stands out", "Findings", body)


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


def _splits(document: Part) -> ReportSection:
    has_boxes = any(facts["boxes"] for facts in document["splits"].values())
    titles = ["Samples", "Classes", "Per class", "Size", *(("Boxes", "Mean objectness") if has_boxes else ())]
    body = ""
    for k, (split, facts) in enumerate(document["splits"].items()):
        counts, boxes = facts["class_counts"].values(), facts["boxes"]
        cells = [
            count(facts["samples"]), count(len(facts["class_counts"] or facts["pixels"])),
            f"{count(min(counts))} to {count(max(counts))}" if counts else DASH, _size(facts["sizes"]),
        ]  # fmt: skip
        if has_boxes:
            cells += [count(boxes["number"]), percent(boxes["mean_objectness"])] if boxes else [DASH, DASH]
        row = f'<div class="named">{key(coloured(k))}{clipped(split)}</div>'
        body += f'<tr><th scope="row">{row}</th>{"".join(map(numeric, titles, cells))}</tr>'
    top = heads("Split") + heads(*titles, numbers=True)
    lede = '<p class="lede">Objectness is the share of an image that objects fill.</p>' if has_boxes else ""
    listing = table("tiles counts", "Splits", top, body, unseen=True)
    return ReportSection("splits", "Splits", "Splits", lede + listing)


def _size(sizes: Mapping[str, int]) -> str:
    if "width_min" in sizes:
        low, high = (f"{sizes[f'width_{end}']} {TIMES} {sizes[f'height_{end}']}" for end in ("min", "max"))
        return low if low == high else f"{low} to {high}"
    return f"{count(sizes['shortest'])} to {count(sizes['longest'])} characters" if sizes else DASH


def _legend(splits: Sequence[str]) -> str:
    items = "".join(f"<li>{key(coloured(k))}{clipped(split)}</li>" for k, split in enumerate(splits))
    return f'<ul class="legend curves">{items}</ul>' if len(splits) > 1 else ""


def _classes(document: Part) -> ReportSection | None:
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
    listing = sortable("classes", caption, columns, rows, noun=("class", "classes"))
    figure = charts.balance("balance", values, is_share=is_share)
    caption = f"{'The share of pixels' if is_share else 'How many samples'} of each class, by split."
    body = (
        f'{_legend(list(splits))}<div class="one"><figure>{figure}<figcaption><p>{caption}</p></figcaption></figure>'
        f"</div>{listing}"
    )
    return ReportSection("classes", "Balance of the classes", "Classes", body)


def _boxes(document: Part) -> ReportSection | None:
    boxes = {split: facts["boxes"] for split, facts in document["splits"].items() if facts["boxes"].get("number")}
    if not boxes:
        return None
    figures = (
        (charts.boxes_per_image("boxes-per-image", boxes), "Boxes per image"),
        (charts.histograms("area", boxes, "area_histogram", "share of boxes"), "Area of a box"),
        (charts.histograms("objectness", boxes, "objectness_histogram", "share of images"),
         "Objectness: how much of an image all its objects fill"),
    )  # fmt: skip
    html = "".join(f"<figure>{figure}<figcaption>{caption}</figcaption></figure>" for figure, caption in figures)
    body = f'{_legend(list(boxes))}<div class="multiples">{html}</div>{_box_numbers(boxes)}'
    return ReportSection("boxes", "Boxes and objectness", "Boxes", body)


def _box_numbers(boxes: Mapping[str, Part]) -> str:
    columns = {
        "Boxes": "number", "Crowds": "crowds", "Without area": "without_area",
        "Images with several boxes": "images_with_several", "With several classes": "images_with_several_classes",
    }  # fmt: skip
    body = "".join(
        f'<tr><th scope="row">{clipped(split)}</th>'
        + "".join(numeric(title, count(part[number])) for title, number in columns.items())
        + "</tr>"
        for split, part in boxes.items()
    )
    return table("tiles counts", "Boxes by split", heads("Split") + heads(*columns, numbers=True), body)


def _pictures(k: int, split: str, sheet: ContactSheet) -> ReportSection:
    colours = charts.colours_of(sheet.cells)
    pictures = "".join(f"<li>{charts.picture(cell, colours)}</li>" for cell in sheet.cells)
    legend = "".join(
        f'<li><span class="box" style="background:rgb({",".join(str(round(255 * c)) for c in colour)})"></span>'
        f"{clipped(label)}</li>"
        for label, colour in (sheet.legend or {}).items()
    )
    legend = f'<ul class="legend curves">{legend}</ul>' if legend else ""
    body = f'<p class="lede">{escape(sheet.text)}</p>{legend}<ul class="sheet">{pictures}</ul>'
    return ReportSection(f"pictures-{k}", f"Pictures of {split}", f"Pictures of {split}"[:40], body)


def _reproduce(document: Part) -> ReportSection:
    facts = [("Calibrant", document["calibrant"]), ("Date", document["created"]), ("Layout", document["layout"])]
    body = command_box(document["reproduce"]) + terms("facts", facts)
    return ReportSection("reproduce", "How to reproduce", "Reproduce", body)


def _file_part(split: str) -> str:
    """A split's name as a part of a file's; one that had to be changed gets a hash, so that no two are the same."""
    plain = re.sub(r"[^\w.+-]+", "-", split)[:60]
    if plain == split:
        return split
    return f"{plain}-{hashlib.blake2b(split.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"
