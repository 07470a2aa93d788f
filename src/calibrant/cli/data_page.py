"""The page that ``calibrant data inspect`` writes: figures, contact sheets, and everything skipped or odd."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from calibrant._files import PART, check_output, remove_leftovers, written_aside
from calibrant.data import (
    Dataset,
    Inspection,
    RandomResizedCrop,
    UnreadableError,
    draw_view,
    objectness_of,
    sample_generator,
)
from calibrant.targets import adaptive_targets

PAGE = "index.html"
#: Pixels of the longer side of pictures on the contact sheet.
THUMBNAIL = 400


def check_page_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier page of ours, before any work is done."""
    from calibrant.report import is_page

    check_output(folder, folder=True)
    if folder.exists() and not is_page(folder / PAGE) and not _is_empty(folder):
        raise ValueError(
            f"{folder} is not empty and holds no page of calibrant data inspect; name a new folder, or an empty one."
        )


def _is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but what a killed process had begun to write."""
    return all(name.startswith(PART) for name in os.listdir(folder))


def write_inspection(
    output: Path,
    found: Inspection,
    document: dict[str, Any],
    datasets: dict[str, Dataset],
    findings: Sequence[tuple[str, str]],
    *,
    samples: int,
    beta: float,
    seed: int,
) -> dict[str, str]:
    """Write index.html and its figures; what was written, by name.

    The page is written first: it has the figures in it, and a folder that has the page is ours when the command is
    repeated after it was killed.
    """
    from calibrant.report import Section, draw_contact_sheet, draw_data_summary, write_page  # brings matplotlib along

    check_page_folder(output)
    with tempfile.TemporaryDirectory(prefix="calibrant-") as drawn:
        figures = {"summary": Path(drawn) / "summary.svg"}
        draw_data_summary(figures["summary"], document["splits"])
        sections = [Section("Balance, boxes, objectness", "Shares are of the whole image.", figure=figures["summary"])]
        for name, dataset in datasets.items():
            cells = _cells(dataset, samples, beta, seed) if dataset.kind == "image" and len(dataset) else []
            if not cells:
                continue
            sheet = Path(drawn) / f"contact-sheet-{_file_part(name)}.png"
            draw_contact_sheet(sheet, cells, legend=_legend(dataset) if dataset.masks is not None else None)
            sections.append(Section(f"Contact sheet: {name}", _about(dataset, len(cells), beta, seed), figure=sheet))
            figures[f"contact sheet of {name}"] = sheet
        sections.append(
            Section(
                "Skipped and odd",
                "Skipped samples are not in the data set; odd ones are.",
                table=(("split", "finding"), findings or [("all", "nothing")]),
                words=True,
            )
        )
        write_page(
            output / PAGE,
            title=f"{found.name}: what is in it",
            intro=f"{found.size}, layout {found.layout}.",
            sections=sections,
        )
        remove_leftovers(output)
        for figure in figures.values():
            with written_aside(output / figure.name) as aside:
                shutil.copyfile(figure, aside)
    return {"page": str(output / PAGE)} | {name: str(output / figure.name) for name, figure in figures.items()}


def _about(dataset: Dataset, number: int, beta: float, seed: int) -> str:
    text = f"{number} samples of {dataset.title}: up to a third odd ones, the others drawn with seed {seed}."
    if dataset.boxes is not None:
        text += (
            " The dashed frame is one random resized crop. The caption says how much of it objects fill,"
            f" and the adaptive target (beta {beta:g}) of the class and of each other class."
        )
    return text


def _file_part(name: str) -> str:
    """A split's name as a part of a file's; one that had to be changed gets a hash, so that no two are the same."""
    plain = re.sub(r"[^\w.+-]+", "-", name)[:60]
    if plain == name:
        return name
    return f"{plain}-{hashlib.blake2b(name.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


def _cells(dataset: Dataset, number: int, beta: float, seed: int) -> list[Any]:
    """Pictures for the contact sheet, the odd ones first."""
    from calibrant.report import Cell

    place = {name: i for i, name in enumerate(dataset.ids)}
    odd = [place[where] for finding in dataset.report.odd for where in finding.where[:2] if where in place]
    chosen = list(dict.fromkeys(odd))[: number // 3]
    random = np.random.default_rng(seed)
    others = random.choice(len(dataset), min(number, len(dataset)), replace=False)
    chosen = list(dict.fromkeys([*chosen, *(int(i) for i in np.sort(others))]))[:number]
    cells = []
    for index in chosen:
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
        size: Any = dataset.inputs
        view = draw_view([RandomResizedCrop(64)], size.header(index)[0], sample_generator(seed, 0, index))
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
    blend = (0.45 * pixels + 0.55 * 255 * _palette(256)[mask]).astype(np.uint8)
    ignored = mask == dataset.ignore_index
    return np.where(ignored[..., None], pixels, blend), scale


def _palette(number: int) -> np.ndarray:
    """Colours that differ: twenty, then again."""
    from matplotlib import colormaps

    return np.array([colormaps["tab20"](k % 20)[:3] for k in range(number)])


def _legend(dataset: Dataset) -> dict[str, tuple[float, float, float]]:
    colours = _palette(len(dataset.classes))
    return {name: tuple(colours[k]) for k, name in enumerate(dataset.classes)}
