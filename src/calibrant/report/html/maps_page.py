"""The page of one image by several methods: picture, truth, predictions, confidence, wrong pixels, reliability."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from calibrant.report.html.charts import RELIABILITY_LEGEND, reliability
from calibrant.report.html.layout import ReportSection, asset, command_box, terms, write_report
from calibrant.report.html.tables import clipped, heads, numeric, table
from calibrant.report.maps import CONFIDENCE, RANK, VOID, ImageMaps, MethodMaps, Pixels, label_colours
from calibrant.report.text import TIMES, count, escape, name, number, percent

#: Pixels of the longer side of a map in the page; larger ones are thinned.
LARGEST = 1024

#: Columns of the table: head, name of the number, whether it is a share.
_COLUMNS = (
    ("Pixel accuracy", "accuracy", True),
    ("Mean IoU", "mean_iou", True),
    ("ECE", "ece", True),
    ("AURC", "aurc", False),
    ("AURC, normalised", "normalised_aurc", False),
    ("Mean rank of wrong pixels", "wrong_rank", True),
    ("The same, normalised", "normalised_wrong_rank", True),
)


def write_maps_page(path: Path, maps: ImageMaps, *, created: str, command: str) -> None:
    """Write the page; the file appears whole or not at all.

    Args:
        path: An ``.html`` file.
        maps: The image, and what methods say of it.
        created: The date.
        command: That makes the page again.
    """
    painted = [maps.maps_of(method) for method in maps.methods]
    names = [method.name for method in maps.methods]
    height, width = maps.picture.shape[:2]
    heading = f"{count(width)} {TIMES} {count(height)}, {count(maps.pixels)} pixels count"

    def sheet(kind: str, captions: Sequence[str]) -> str:
        parts = zip(painted, names, captions, strict=True)
        return _sheet([_figure(part[kind], title, text) for part, title, text in parts])

    sections = [
        ReportSection("picture", "Picture and truth", "Picture", _picture(maps)),
        ReportSection(
            "prediction", "Predictions", "Predictions",
            sheet("prediction", [f"{percent(m.numbers['accuracy'])} of the pixels are right" for m in maps.methods]),
        ),
        ReportSection(
            "confidence", "Confidence", "Confidence",
            _ramp(CONFIDENCE, "0%", "100%", "confidence")
            + sheet("confidence", [f"ECE {percent(m.numbers['ece'])}" for m in maps.methods]),
        ),
        ReportSection("wrong", "Wrong pixels, by how sure the model was", "Wrong pixels", _wrong(maps, sheet)),
        ReportSection("reliability", "Reliability on this image", "Reliability", _reliability(maps.methods)),
        ReportSection("numbers", "Numbers of this image", "Numbers", _numbers(maps.methods)),
        ReportSection("reproduce", "How to reproduce", "Reproduce", command_box(command) + terms("facts", [
            ("Image", maps.image), ("Data", maps.dataset), *((m.name, m.run) for m in maps.methods)])),
    ]  # fmt: skip
    write_report(
        path, sections, title="One image, pixel by pixel", kind="Calibrant maps", created=created,
        top=f'<ul class="files"><li><span class="file">{name(maps.image)}</span> '
        f'<span class="facts">{escape(maps.dataset)} · {heading}</span></li></ul>',
        skip="Skip to the picture", style=asset("data.css") + asset("maps.css"),
    )  # fmt: skip


def _picture(maps: ImageMaps) -> str:
    colours = label_colours(len(maps.classes))
    entries = [(maps.classes[k], [round(255 * c) for c in colours[k]]) for k in maps.shown_classes]
    if ((maps.truth < 0) | (maps.truth >= len(maps.classes))).any():
        entries.append(("void: not counted", list(VOID)))
    legend = "".join(
        f'<li><span class="box" style="background:rgb({",".join(map(str, colour))})"></span>{clipped(label)}</li>'
        for label, colour in entries
    )
    figures = [_figure(maps.picture, "Picture", "as the networks see it"), _figure(maps.truth_map(), "Truth", "")]
    return f'{_sheet(figures)}<ul class="legend curves">{legend}</ul>'


def _wrong(maps: ImageMaps, sheet: Callable[[str, Sequence[str]], str]) -> str:
    ranks = [f"mean rank {percent(m.numbers['wrong_rank'])}" for m in maps.methods]
    normalised = [f"mean rank {percent(m.numbers['normalised_wrong_rank'])}; {m.norm}" for m in maps.methods]
    lede = (
        '<p class="lede">The rank of a pixel is the share of this image\'s pixels of which the model is surer. Red '
        "errors are the dangerous ones: the model is surer of them than of most of the picture. Right pixels and void "
        "are grey.</p>"
    )
    key = _ramp(RANK, "surest", "least sure", "rank of uncertainty")
    return (
        f"{lede}{key}<h3>Ranked by confidence</h3>{sheet('rank', ranks)}"
        f"<h3>Ranked by normalised logits</h3>{sheet('normalised_rank', normalised)}"
    )


def _reliability(methods: Sequence[MethodMaps]) -> str:
    figures = "".join(
        f"<figure>{reliability(f'reliability-{k}', dict(m.reliability), m.name, 'pixels')}"
        f'<figcaption><p><span class="says">{name(m.name)}</span>: ECE {percent(m.numbers["ece"])} (15 bins)</p>'
        "</figcaption></figure>"
        for k, m in enumerate(methods)
    )
    lede = (
        '<p class="lede">Of the pixels of this image alone. They depend on each other, so no intervals are drawn, and '
        "the ECE of an image is usually larger than that of a whole set of images.</p>"
    )
    return f'{lede}{RELIABILITY_LEGEND}<div class="multiples">{figures}</div>'


def _numbers(methods: Sequence[MethodMaps]) -> str:
    rows = []
    for method in methods:
        cells = "".join(
            numeric(title, percent(method.numbers[key]) if is_share else number(method.numbers[key]))
            for title, key, is_share in _COLUMNS
        )
        rows.append(f'<tr><th scope="row">{clipped(method.name)}</th>{cells}</tr>')
    top = heads("Method") + heads(*(title for title, _, _ in _COLUMNS), numbers=True)
    return table("tiles counts", "Numbers of this image", top, "".join(rows), unseen=True)


def _sheet(figures: Sequence[str]) -> str:
    return f'<ul class="sheet maps">{"".join(f"<li>{figure}</li>" for figure in figures)}</ul>'


def _figure(pixels: Pixels, title: str, text: str) -> str:
    words = f"<span>{escape(text)}</span>" if text else ""
    return (
        f'<figure><img class="picture pixels" alt="{escape(title)}" src="{_address(pixels)}">'
        f'<figcaption><span class="says">{name(title)}</span>{words}</figcaption></figure>'
    )


def _ramp(ramp: Sequence[str], low: str, high: str, caption: str) -> str:
    return (
        f'<p class="ramp"><span>{escape(low)}</span>'
        f'<span class="colours" style="background:linear-gradient(90deg,{",".join(ramp)})"></span>'
        f"<span>{escape(high)}</span> <span>{escape(caption)}</span></p>"
    )


def _address(pixels: Pixels) -> str:
    from PIL import Image

    step = -(-max(pixels.shape[:2]) // LARGEST)
    file = io.BytesIO()
    Image.fromarray(pixels[::step, ::step]).save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
