"""The pictures that ``calibrant data inspect`` puts on a contact sheet: with boxes, masks and adaptive targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from calibrant.data import Dataset, RandomResizedCrop, UnreadableError, draw_view, objectness_of, sample_generator
from calibrant.report import Cell, ContactSheet, label_colours
from calibrant.targets import adaptive_targets

#: Pixels of the longer side of a picture.
THUMBNAIL = 400


def contact_sheet(dataset: Dataset, samples: int, beta: float, seed: int) -> ContactSheet | None:
    """Pictures of a data set, what is said of them, and the colours of its masks; None if there is nothing to see."""
    cells = _cells(dataset, samples, beta, seed) if dataset.kind == "image" and len(dataset) else []
    if not cells:
        return None
    text = (
        f"{len(cells)} samples of {dataset.title}: up to a third are odd ones, the others are drawn with seed {seed}."
    )
    if dataset.boxes is not None:
        text += (
            " The dashed frame is one random resized crop. The caption says how much of it objects fill,"
            f" and the adaptive target (beta {beta:g}) of the class and of each other class."
        )
    colours = label_colours(len(dataset.classes))
    legend = {name: tuple(colour) for name, colour in zip(dataset.classes, colours, strict=True)}
    return ContactSheet(cells, text, legend if dataset.masks is not None else None)


def _cells(dataset: Dataset, number: int, beta: float, seed: int) -> list[Cell]:
    """Pictures, the odd ones first; those that cannot be read are left out."""
    index_of = {name: i for i, name in enumerate(dataset.ids)}
    odd = [index_of[ident] for finding in dataset.report.odd for ident in finding.where[:2] if ident in index_of]
    drawn_rows = np.random.default_rng(seed).choice(len(dataset), min(number, len(dataset)), replace=False)
    odd_rows = list(dict.fromkeys(odd))[: number // 3]
    cells = []
    for index in list(dict.fromkeys([*odd_rows, *np.sort(drawn_rows).tolist()]))[:number]:
        try:
            pixels, scale = _thumbnail(dataset, index)
        except (UnreadableError, OSError, ValueError):
            continue
        label = int(dataset.labels[index])
        title = dataset.classes[label] if label >= 0 else ("no class" if dataset.masks is None else "")
        caption = title[:34] if title else dataset.ids[index].rsplit("/", 1)[-1][:34]
        if dataset.boxes is None:
            cells.append(Cell(pixels, caption))
            continue
        source: Any = dataset.inputs
        view = draw_view([RandomResizedCrop(64)], source.header(index)[0], sample_generator(seed, 0, index))
        boxes = dataset.boxes.take(np.array([index]))
        caption += _target(float(objectness_of(boxes, [view])[0]), label, len(dataset.classes), beta)
        names = [dataset.classes[k] if k >= 0 else "?" for k in boxes.labels]
        x1, y1, x2, y2 = (edge * scale for edge in view.crop)
        cells.append(Cell(pixels, caption, boxes[0] * scale, names, (x1, y1, x2, y2)))
    return cells


def _target(share: float, label: int, classes: int, beta: float) -> str:
    K = max(2, classes)
    if label < 0:
        return f"\nobjectness {share:.2f}\ntarget {1 / K:.3g} for all"
    target = adaptive_targets([label], [share], K, beta)[0]
    return f"\nobjectness {share:.2f}\ntarget {float(target[label]):.2f}, others {float(target[(label + 1) % K]):.3g}"


def _thumbnail(dataset: Dataset, index: int) -> tuple[np.ndarray, float]:
    """A picture of at most `THUMBNAIL` pixels a side, with its mask if it has one, and its scale."""
    source: Any = dataset.inputs
    (width, height), _ = source.header(index)
    scale = min(1.0, THUMBNAIL / max(width, height))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    # A JPEG is decoded at half or a quarter of its size where that is enough.
    image = source.open(index, lambda image: image.draft(None, size) if image.format == "JPEG" else None)
    pixels = np.asarray(image.resize(size) if image.size != size else image)
    if dataset.masks is None:
        return pixels, scale
    mask = np.asarray(dataset.masks[index].resize(size, Image.Resampling.NEAREST))
    blend = (0.45 * pixels + 0.55 * 255 * label_colours(256)[mask]).astype(np.uint8)
    ignored = mask == dataset.ignore_index
    return np.where(ignored[..., None], pixels, blend), scale
