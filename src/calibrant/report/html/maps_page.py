"""Maps of one image by several methods, their colours, and their page: all numbers are given, none is computed.

Colours are those of classes, of confidences, and of wrong pixels by how sure the model was of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Doubles
from calibrant.report import html
from calibrant.report.html.charts import RELIABILITY_LEGEND, reliability
from calibrant.report.html.svg import image_address
from calibrant.report.html.tables import clipped, number_table
from calibrant.report.text import TIMES, count, escape, name, number, percent

Pixels = npt.NDArray[np.uint8]

#: From no confidence to all of it: the deeper the surer [MbLS, Fig. 3].
CONFIDENCE = ("#f7fbff", "#9ecae1", "#2171b5", "#08306b")
#: Wrong pixels from the surest of all pixels to the least sure.
RANK = ("#a50026", "#f46d43", "#fee08b", "#ffffd9")
#: Pixels without a label.
VOID = (128, 128, 128)
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


@dataclass(frozen=True, eq=False)
class MethodMaps:
    """What one method says of every pixel of an image."""

    name: str
    run: str  # the folder of its run
    predicted: npt.NDArray[np.int64]  # [H, W] classes
    confidence: Doubles  # [H, W]
    wrong: npt.NDArray[np.bool_]  # [H, W], whether a pixel counts and its class is wrong
    rank: Doubles  # [H, W], the share of the pixels that count of which the model is surer: 0 is the surest
    normalised_rank: Doubles  # the same by normalised logits
    norm: str  # which logit normalisation that is, in words
    reliability: Mapping[str, Any]  # series of a reliability diagram over the pixels that count
    # By name: accuracy, mean_iou, ece, aurc, normalised_aurc, and the mean ranks of wrong pixels, wrong_rank and
    # normalised_wrong_rank.
    numbers: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """An image with its labels, and what methods say of it."""

    image: str  # its id
    dataset: str  # where it is from
    classes: tuple[str, ...]
    picture: Pixels  # [H, W, 3], as the networks see it
    truth: npt.NDArray[np.int64]  # [H, W] labels; whatever is not a class is void
    pixels: int  # how many count
    methods: tuple[MethodMaps, ...]  # side by side

    @property
    def shown_classes(self) -> list[int]:
        """Classes that are labelled or predicted somewhere."""
        labels = np.unique(np.concatenate([self.truth.ravel(), *(m.predicted.ravel() for m in self.methods)]))
        return [int(k) for k in labels if 0 <= k < len(self.classes)]

    def truth_map(self) -> Pixels:
        """The labels in colours."""
        return paint_labels(self.truth, len(self.classes))

    def maps_of(self, method: MethodMaps) -> dict[str, Pixels]:
        """Prediction, confidence, and wrong pixels by both ranks, in colours."""
        return {
            "prediction": paint_labels(method.predicted, len(self.classes)),
            "confidence": paint_ramp(method.confidence, CONFIDENCE),
            "rank": paint_wrong(self.picture, method.rank, method.wrong),
            "normalised_rank": paint_wrong(self.picture, method.normalised_rank, method.wrong),
        }


def label_colours(number: int) -> Doubles:
    """Colours [number, 3] in 0..1 that differ: twenty, then again."""
    from matplotlib import colormaps

    return np.array([colormaps["tab20"](k % 20)[:3] for k in range(number)])


def paint_labels(labels: npt.NDArray[np.integer], classes: int) -> Pixels:
    """Labels [H, W] in the colours of their classes; whatever is not a class is grey."""
    colours = np.rint(255 * label_colours(classes)).astype(np.uint8)
    is_class = (labels >= 0) & (labels < classes)
    painted = colours[np.where(is_class, labels, 0)]
    painted[~is_class] = VOID
    return painted


def paint_ramp(values: Doubles, ramp: tuple[str, ...]) -> Pixels:
    """Values [H, W] from 0 to 1 in colours between those of a ramp.

    Example:
        >>> paint_ramp(np.array([[0.0, 0.5, 1.0]]), ("#000000", "#ffffff")).tolist()
        [[[0, 0, 0], [128, 128, 128], [255, 255, 255]]]
    """
    anchors = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in ramp], np.float64)
    at = np.linspace(0, 1, len(ramp))
    channels = [np.interp(values, at, anchors[:, k]) for k in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def paint_wrong(picture: Pixels, rank: Doubles, is_wrong: npt.NDArray[np.bool_]) -> Pixels:
    """A picture [H, W, 3] in pale grey, and its wrong pixels by the rank of their uncertainty."""
    grey = picture.mean(axis=2, keepdims=True)
    pale = np.rint(np.repeat(150 + 0.35 * grey, 3, axis=2)).astype(np.uint8)
    return np.where(is_wrong[..., None], paint_ramp(rank, RANK), pale)


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
        html.ReportSection("picture", "Picture and truth", "Picture", _picture(maps)),
        html.ReportSection(
            "prediction", "Predictions", "Predictions",
            sheet("prediction", [f"{percent(m.numbers['accuracy'])} of the pixels are right" for m in maps.methods]),
        ),
        html.ReportSection(
            "confidence", "Confidence", "Confidence",
            _ramp(CONFIDENCE, "0%", "100%", "confidence")
            + sheet("confidence", [f"ECE {percent(m.numbers['ece'])}" for m in maps.methods]),
        ),
        html.ReportSection("wrong", "Wrong pixels, by how sure the model was", "Wrong pixels", _wrong(maps, sheet)),
        html.ReportSection("reliability", "Reliability on this image", "Reliability", _reliability(maps.methods)),
        html.ReportSection("numbers", "Numbers of this image", "Numbers", _numbers(maps.methods)),
        html.reproduction(
            command, [("Image", maps.image), ("Data", maps.dataset), *((m.name, m.run) for m in maps.methods)]
        ),
    ]  # fmt: skip
    html.write_report(
        path, sections, title="One image, pixel by pixel", kind="Calibrant maps", created=created,
        top=f'<ul class="files"><li><span class="file">{name(maps.image)}</span> '
        f'<span class="facts">{escape(maps.dataset)} · {heading}</span></li></ul>',
        skip="Skip to the picture", style=html.asset("data.css") + html.asset("maps.css"),
    )  # fmt: skip


def _picture(maps: ImageMaps) -> str:
    colours = label_colours(len(maps.classes))
    entries: list[tuple[str, Sequence[int]]] = [
        (maps.classes[k], [round(255 * c) for c in colours[k]]) for k in maps.shown_classes
    ]
    if ((maps.truth < 0) | (maps.truth >= len(maps.classes))).any():
        entries.append(("void: not counted", VOID))
    figures = [_figure(maps.picture, "Picture", "as the networks see it"), _figure(maps.truth_map(), "Truth", "")]
    return _sheet(figures) + html.painted_legend(entries)


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
        html.figure(
            reliability(f"reliability-{k}", m.reliability, m.name, "pixels"),
            f'<p><span class="says">{name(m.name)}</span>: ECE {percent(m.numbers["ece"])} (15 bins)</p>',
        )
        for k, m in enumerate(methods)
    )
    lede = (
        '<p class="lede">Of the pixels of this image alone. They depend on each other, so no intervals are drawn, and '
        "the ECE of an image is usually larger than that of a whole set of images.</p>"
    )
    return f'{lede}{RELIABILITY_LEGEND}<div class="multiples">{figures}</div>'


def _numbers(methods: Sequence[MethodMaps]) -> str:
    rows = []
    for m in methods:
        cells = [percent(m.numbers[key]) if is_share else number(m.numbers[key]) for _, key, is_share in _COLUMNS]
        rows.append((clipped(m.name), cells))
    words = ("Method", *(title for title, _, _ in _COLUMNS))
    return number_table("tiles counts", "Numbers of this image", words, rows, unseen=True)


def _sheet(figures: Sequence[str]) -> str:
    return f'<ul class="sheet maps">{"".join(f"<li>{figure}</li>" for figure in figures)}</ul>'


def _figure(pixels: Pixels, title: str, text: str) -> str:
    words = f"<span>{escape(text)}</span>" if text else ""
    step = -(-max(pixels.shape[:2]) // LARGEST)
    address = image_address(pixels[::step, ::step], "png", optimize=True)
    picture = f'<img class="picture pixels" alt="{escape(title)}" src="{address}">'
    return html.figure(picture, f'<span class="says">{name(title)}</span>{words}')


def _ramp(ramp: Sequence[str], low: str, high: str, caption: str) -> str:
    return (
        f'<p class="ramp"><span>{escape(low)}</span>'
        f'<span class="colours" style="background:linear-gradient(90deg,{",".join(ramp)})"></span>'
        f"<span>{escape(high)}</span> <span>{escape(caption)}</span></p>"
    )
