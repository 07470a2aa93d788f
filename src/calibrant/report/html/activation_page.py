"""The page of class activation maps: where each network looks, what it says, and the share of its maps on the objects.

It draws the document of a study and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.report import html
from calibrant.report.document import Part, check_format
from calibrant.report.html.svg import bar_legend, coloured, framed_picture, interval_bar, key, reach
from calibrant.report.html.tables import clipped, number_table
from calibrant.report.text import DASH, count, difference, difference_span, escape, name, percent, round_percent, span

if TYPE_CHECKING:
    from calibrant.report.figures.images import Cell

#: Where the number behind the maps is missing.
NO_BOXES = "No boxes of visible objects come with these images: how much of the maps lies on objects is not known."

#: Maps side by side on a desk; more go on below.
MOST_COLUMNS = 7

#: How a class below a map is marked, beside its colour.
_MARKS = {True: ("right", "\u2713"), False: ("wrong", "\u2717")}


def write_activation_page(path: str | Path, document: Part, pictures: Sequence[Sequence[Cell]]) -> None:
    """Write the page; the file appears whole or not at all.

    Args:
        path: Where the page is written.
        document: The study's document, with ``created``, ``calibrant`` and ``reproduce``.
        pictures: For each row of the document the picture, and the map of each network over it.
    """
    check_format("a page of activation maps", document, "calibrant.cam")
    facts = [("Calibrant", document["calibrant"]), ("Date", document["created"])]
    sections = [
        _maps(document, pictures), _shares(document), _differences(document), _method(document),
        html.reproduction(document["reproduce"], facts),
    ]  # fmt: skip
    html.write_report(
        path, sections, title="Where do the networks look?",
        kind="Calibrant class activation maps", created=document["created"], top=_headline(document),
        skip="Skip to the maps", style=html.asset("data.css") + html.asset("activation.css"),
    )  # fmt: skip


def _headline(document: Part) -> str:
    if not document["has_boxes"]:
        return f'<p class="lede">{NO_BOXES}</p>'
    measured = [m for m in document["methods"] if m["inside"]["value"] == m["inside"]["value"]]
    if not measured:
        return ""
    best = max(measured, key=lambda method: method["inside"]["value"])
    headline = f"{percent(best['inside']['value'])} of the maps of {name(best['name'])} lies on the objects"
    other_runs = [f"{name(m['name'])}: {percent(m['inside']['value'])}" for m in measured if m is not best]
    comparison = f"{'; '.join(other_runs)}. " if other_runs else ""
    text = (
        f"{comparison}The boxes of the objects fill {percent(document['area'])} of these {count(document['measured'])} "
        "images: an even map would have as much inside."
    )
    return html.verdict_box("info", "Mean share of the map", headline, f"<p>{text}</p>")


def _maps(document: Part, pictures: Sequence[Sequence[Cell]]) -> html.ReportSection:
    explained = "the class that it predicts" if document["explained"] == "predicted" else "the image's class"
    has_boxes = any(cells[0].boxes is not None for cells in pictures)
    lede = (
        f'<p class="lede">Bright is where the network looks for {explained}.'
        f"{' Dashed frames are the boxes of the objects.' if has_boxes else ''} Below each map are the most likely "
        'classes: <span class="right">\u2713 the image\u2019s class</span>, <span class="wrong">\u2717 another '
        "class</span>.</p>"
    )
    rows = "".join(_row(document, row, cells) for row, cells in zip(document["rows"], pictures, strict=True))
    return html.ReportSection("maps", "Maps", "Maps", lede + rows)


def _row(document: Part, row: Part, cells: Sequence[Cell]) -> str:
    words = f"{name(row['label'])}{', its objects covered' if row['context'] else ''}"
    image_label = f"{escape(row['label'])}, image {escape(row['id'])}"
    items = (
        f'<li><figure><div class="named">Picture</div>{_picture(cells[0], image_label)}'
        f"<figcaption>{name(row['id'])}</figcaption></figure></li>"
    )
    names = [method["name"] for method in document["methods"]]
    for method, cell in zip(row["methods"], cells[1:], strict=True):
        top = "".join(_class(entry) for entry in method["top"])
        share = percent(method["inside"])
        inside = "" if share == DASH else f'<p class="inside">{share} inside the boxes</p>'
        title = f"{key(coloured(names.index(method['name'])))}{clipped(method['name'])}"
        picture = _picture(cell, f"Map of {escape(method['name'])}, {image_label}")
        items += (
            f'<li><figure><div class="named">{title}</div>{picture}'
            f'<figcaption><ol class="top">{top}</ol>{inside}</figcaption></figure></li>'
        )
    columns = min(len(cells), MOST_COLUMNS)
    return f'<h3>{words}</h3><ul class="sheet maps" style="--columns:{columns}">{items}</ul>'


def _picture(cell: Cell, label: str) -> str:
    return framed_picture(cell, {"": "dashed"}, label)


def _class(entry: Part) -> str:
    kind, mark = _MARKS[entry["right"]]
    return (
        f'<li class="{kind}"><span aria-hidden="true">{mark}</span><span class="unseen">{kind}:</span> '
        f"{name(entry['class'])} {percent(entry['confidence'])}</li>"
    )


def _shares(document: Part) -> html.ReportSection | None:
    if not document["measured"]:
        return None
    methods = document["methods"]
    across = reach([m["inside"][end] for m in methods for end in ("value", "low", "high")] + [document["area"]])
    rows = []
    for k, method in enumerate(methods):
        value, low, high = (method["inside"][end] for end in ("value", "low", "high"))
        bar = interval_bar(value, low, high, across, k)
        cells = (f"{percent(value)}{bar}", span(low, high, "share", value) or DASH, count(method["images"]))
        rows.append((f'<div class="named">{key(coloured(k))}{clipped(method["name"])}</div>', cells))
    lede = (
        f'<p class="lede">The share of a map inside the boxes of the objects, mean over {count(document["measured"])} '
        f"images drawn from the set {name(document['set'])}; intervals by the bootstrap over images. The boxes fill "
        f"{percent(document['area'])} of the images.</p>{bar_legend('the largest value or limit')}"
    )
    words = ("Run", "Inside the boxes", f"{round_percent(document['level'])} interval", "Images")
    listing = number_table("tiles counts", "Share of the maps inside the boxes", words, rows, unseen=True)
    return html.ReportSection("shares", "How much of the maps lies on the objects", "Shares", lede + listing)


def _differences(document: Part) -> html.ReportSection | None:
    if not document["measured"] or not document["differences"]:
        return None
    values = {method["name"]: method["inside"]["value"] for method in document["methods"]}
    rows = []
    for pair in document["differences"]:
        shares = [values[pair["first"]], values[pair["second"]]]
        ends = difference_span(pair["low"], pair["high"], "share", shares) or DASH
        cells = (difference(pair["value"], "share", shares), ends, count(pair["images"]))
        rows.append((f"{name(pair['second'])} against {name(pair['first'])}", cells))
    lede = '<p class="lede">Mean differences on the same images, in percentage points (pp).</p>'
    words = ("Runs", "Difference", f"{round_percent(document['level'])} interval", "Images")
    listing = number_table("tiles counts", "Differences of the shares", words, rows, unseen=True)
    return html.ReportSection("differences", "Differences between the runs", "Differences", lede + listing)


def _method(document: Part) -> html.ReportSection:
    lede = (
        '<p class="lede">Grad-CAM++ weighs the channels of a layer by how they raise the class\u2019s logit. The layer '
        "has few positions, so a map is coarse; it is scaled to 0 to 1 and to the size of the picture. A pixel is "
        "inside a box if its centre is.</p>"
    )
    facts = [(m["name"], f"model {m['model']}, layer {m['layer']}") for m in document["methods"]]
    return html.ReportSection("method", "How the maps are made", "Method", lede + html.terms("facts", facts))
