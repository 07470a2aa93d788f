"""``calibrant data``: look at a data set, and write its masked variants."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calibrant.cli.common import Json, Quiet, print_json, print_table, progress, remark, say
from calibrant.data import (
    Dataset,
    RandomResizedCrop,
    View,
    context_only,
    draw_view,
    layouts,
    objectness_of,
    pixel_mean,
    read,
    recognise,
    single_object,
)
from calibrant.data.inspection import Inspection, SplitFacts, inspect
from calibrant.data.layouts import Layout
from calibrant.data.loading import sample_generator
from calibrant.data.sources import UnreadableError
from calibrant.data.written import Watch, write_dataset
from calibrant.targets import adaptive_targets

app = typer.Typer(help="Data sets: look at one, or write its masked variants.", rich_markup_mode=None)

LayoutName = Annotated[
    str | None, typer.Option("--layout", help="How the data lies on disk; recognised if left out.", show_default=False)
]
#: Classes that are printed one by one.
PRINTED_CLASSES = 30


class Variant(enum.StrEnum):
    """Which objects stay."""

    single_object = "single-object"
    context_only = "context-only"


@app.command("layouts")
def layouts_command(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the layouts of data sets that can be read."""
    rows = [(name, layout.summary) for name, layout in layouts().items()]
    if as_json:
        print_json(dict(rows))
    elif not quiet:
        print_table("Layouts", ("name", "what is where"), rows, numbers=False)


@app.command("inspect")
def inspect_command(
    path: Annotated[Path, typer.Argument(help="The data folder, or a file of arrays.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Only this split (repeat for more).", show_default=False)
    ] = None,
    layout: LayoutName = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the page, the contact sheet and the figures.", show_default=False
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Pictures on the contact sheet.", min=1)] = 24,
    beta: Annotated[float, typer.Option(help="Beta of the adaptive targets on the contact sheet.")] = 1.0,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image, to find all broken ones.")] = False,
    seed: Annotated[int, typer.Option(help="Which pictures the contact sheet shows.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count classes, boxes and objectness of a data set, list what is broken or odd, and draw a contact sheet.

    Broken samples are skipped, counted and listed. Without -o nothing is written.
    """
    kind, root = _found(path, layout)
    splits = split or _plain_splits(kind, root)
    have = kind.splits(root)
    if unknown := [name for name in splits if name not in have]:
        raise ValueError(f"{path}: split {unknown[0]!r} was asked for, and {kind.name} has {', '.join(have)}.")
    adaptive_targets([0], [1.0], 2, beta)  # a wrong beta is said before the work

    def watch(items: Iterable[Any], number: int, what: str) -> Iterable[Any]:
        return progress(items, number, what, quiet)

    found, datasets = inspect(kind, root, splits, decode=decode, watch=watch)
    document = found.to_json()
    if output is not None:
        document["files"] = _write_page(found, document, datasets, output, samples, beta, seed)
    if as_json:
        print_json(document)
    elif not quiet:
        _print(found)
    if output is not None:
        remark(f"open {output / 'index.html'}", quiet)


@app.command("make-variant")
def make_variant_command(
    path: Annotated[Path, typer.Argument(help="A data folder with boxes.")],
    variant: Annotated[
        Variant,
        typer.Argument(
            help="single-object: one sample per object, the others covered; context-only: every object covered."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new data set.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Only this split (repeat for more).", show_default=False)
    ] = None,
    layout: LayoutName = None,
    fill: Annotated[
        str | None,
        typer.Option(
            help="Colour of covered objects as red,green,blue; the first split's mean pixel if left out.",
            show_default=False,
        ),
    ] = None,
    image_format: Annotated[str, typer.Option("--format", help="png keeps the pixels, jpg is smaller.")] = "png",
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave broken samples out and list them, rather than stop.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a masked variant of a data set (ALS, Fig. 4) as a data set of its own.

    The objects are covered by the mean pixel. Started again, the command goes on where it was interrupted.
    """
    colour = _colour(fill) if fill else None
    kind, root = _found(path, layout)
    splits = split or _plain_splits(kind, root)
    on_error: Any = "skip" if skip_broken else "raise"
    datasets = {name: read(root, name, layout=kind.name, on_error=on_error) for name in splits}
    written = {}
    for name, dataset in datasets.items():
        if colour is None:
            remark(f"mean pixel of {dataset.title}", quiet)
            colour = pixel_mean(dataset, limit=None)
        make = single_object if variant is Variant.single_object else context_only
        made = make(dataset, colour)
        table = write_dataset(
            made,
            output,
            image_format=image_format,  # type: ignore[arg-type]  # checked there
            made_from={"variant": variant.value, "data": dataset.name, "fill": list(colour)},
            watch=_watch(f"images of {name}", quiet),
        )
        written[name] = {"samples": len(made), "table": str(table), "of": len(dataset)}
        for line in dataset.report.lines():
            remark(f"{name}: {line}", quiet)
    if as_json:
        print_json({"variant": variant.value, "fill": list(colour or ()), "splits": written})
    elif not quiet:
        rows = [(name, str(made["of"]), str(made["samples"]), str(made["table"])) for name, made in written.items()]
        print_table(f"{variant.value}, covered by {colour}", ("split", "samples before", "after", "table"), rows)


def _watch(what: str, quiet: bool) -> Watch:
    return lambda items, number: progress(items, number, what, quiet)


def _found(path: Path, layout: str | None) -> tuple[Layout, Path]:
    if layout is None:
        return recognise(path)
    if layout not in layouts():
        raise ValueError(f"no layout {layout!r}; known are {', '.join(layouts())}.")
    if not layouts()[layout].splits(path):
        raise ValueError(f"{path}: not a data set in the layout {layout}: {layouts()[layout].summary}.")
    return layouts()[layout], path


def _plain_splits(kind: Layout, root: Path) -> list[str]:
    """The splits, without those that repeat others under one name."""
    usual = ("train", "val", "validation", "test")
    splits = sorted(kind.splits(root), key=lambda name: usual.index(name) if name in usual else len(usual))
    return [name for name in splits if name not in ("trainval", "all")] or splits


def _colour(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) < 256 for part in parts):
        raise ValueError(f"--fill takes three numbers from 0 to 255 as red,green,blue, got {text!r}")
    red, green, blue = (int(part) for part in parts)
    return red, green, blue


def _print(found: Inspection) -> None:
    say(f"{found.name} ({found.layout}) in {found.root}: {found.samples} samples in {len(found.splits)} splits")
    print()
    rows = []
    for name, facts in found.splits.items():
        counts = list(facts.class_counts.values()) or [0]
        boxes = facts.boxes
        rows.append((
            name, str(facts.samples), str(len(facts.class_counts or facts.pixels)),
            f"{min(counts)}-{max(counts)}" if facts.class_counts else "-",
            _size(facts), str(boxes["number"]) if boxes else "-",
            f"{boxes['mean_objectness']:.3f}" if boxes else "-",
        ))  # fmt: skip
    print_table("Splits", ("split", "samples", "classes", "per class", "size", "boxes", "objectness"), rows)
    _print_classes(found)
    for name, facts in found.splits.items():
        if facts.boxes.get("number"):
            _print_histograms(name, facts)
    print()
    for splits, line in _findings(found, 3) or [("all splits", "nothing skipped, nothing odd")]:
        say(f"{splits}: {line}", indent=2)


def _findings(found: Inspection, places: int) -> list[tuple[str, str]]:
    """Which splits, and what; a finding about all of a data set is said once."""
    lines: dict[str, list[str]] = {}
    for name, facts in found.splits.items():
        for line in facts.report.lines(places):
            lines.setdefault(line, []).append(name)
    rows = [(", ".join(splits), line) for line, splits in lines.items()]
    return rows + [("across splits", line) for line in found.across.lines(places)]


def _size(facts: SplitFacts) -> str:
    if "width_min" in facts.sizes:
        s = facts.sizes
        low, high = f"{s['width_min']}x{s['height_min']}", f"{s['width_max']}x{s['height_max']}"
        return low if low == high else f"{low} to {high}"
    return " to ".join(str(facts.sizes[k]) for k in ("shortest", "longest")) + " characters" if facts.sizes else "-"


def _print_classes(found: Inspection) -> None:
    pixels = any(facts.pixels for facts in found.splits.values())
    tables = {name: facts.pixels if pixels else facts.class_counts for name, facts in found.splits.items()}
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    if not names:
        return
    # The largest and the smallest are what matters where there are too many to read.
    size = {name: sum(table.get(name, 0) for table in tables.values()) for name in names}
    shown = names
    if len(names) > PRINTED_CLASSES:
        ordered = sorted(names, key=lambda name: -size[name])
        shown = [*ordered[: PRINTED_CLASSES // 2], *ordered[-(PRINTED_CLASSES // 2) :]]
    title = "Share of pixels" if pixels else "Samples of each class"
    if len(shown) < len(names):
        title += f" ({len(shown)} of {len(names)}: the largest and the smallest)"
    objects = {name: facts.boxes["by_class"] for name, facts in found.splits.items() if facts.boxes.get("number")}
    rows = []
    for name in shown:
        cells = [f"{table.get(name, 0):.4f}" if pixels else str(table.get(name, 0)) for table in tables.values()]
        rows.append((name, *cells, *(str(table.get(name, 0)) for table in objects.values())))
    print()
    print_table(title, ("class", *tables, *(f"boxes in {name}" for name in objects)), rows)


def _print_histograms(name: str, facts: SplitFacts) -> None:
    boxes = facts.boxes
    edges = boxes["edges"]
    print()
    print_table(
        f"{name}: boxes by area and images by objectness, as shares of the image",
        ("share", "boxes", "images"),
        [
            (f"{low:g}-{high:g}", str(a), str(o))
            for low, high, a, o in zip(
                edges[:-1], edges[1:], boxes["area_histogram"], boxes["objectness_histogram"], strict=True
            )
        ],
    )


def _write_page(
    found: Inspection,
    document: dict[str, Any],
    datasets: dict[str, Dataset],
    output: Path,
    samples: int,
    beta: float,
    seed: int,
) -> dict[str, str]:
    from calibrant.report import Section, draw_contact_sheet, draw_data_summary, write_page  # brings matplotlib along

    output.mkdir(parents=True, exist_ok=True)
    summary = output / "summary.svg"
    draw_data_summary(summary, document["splits"])
    sections = [Section("Balance, boxes, objectness", "Shares are of the whole image.", figure=summary)]
    files = {"page": str(output / "index.html"), "summary": str(summary)}
    for name, dataset in datasets.items():
        if dataset.kind != "image" or len(dataset) == 0:
            continue
        sheet = output / f"contact-sheet-{name.replace('/', '-')}.png"
        cells = _cells(dataset, samples, beta, seed)
        if not cells:
            continue
        draw_contact_sheet(sheet, cells)
        text = f"{len(cells)} samples of {dataset.title}, drawn with seed {seed}."
        if dataset.boxes is not None:
            text += (
                " Boxes are coloured by class; the dashed frame is one random resized crop. The caption says how much"
                f" of the crop objects fill, and the adaptive target (beta {beta:g}) of the class and of each other one."
            )
        sections.append(Section(f"Contact sheet: {name}", text, figure=sheet))
        files[f"contact sheet of {name}"] = str(sheet)
    sections.append(
        Section(
            "Skipped and odd",
            "Skipped samples are not in the data set; odd ones are.",
            table=(("split", "finding"), _findings(found, 10) or [("all", "nothing")]),
        )
    )
    write_page(
        output / "index.html",
        title=f"{found.name}: what is in it",
        intro=f"{found.samples} samples in {len(found.splits)} splits, layout {found.layout}.",
        sections=sections,
    )
    return files


def _cells(dataset: Dataset, number: int, beta: float, seed: int) -> list[Any]:
    from calibrant.report import Cell

    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(len(dataset), min(number, len(dataset)), replace=False))
    cells = []
    for row in rows:
        index = int(row)
        label = int(dataset.labels[index])
        title = dataset.classes[label] if label >= 0 else ("no class" if dataset.masks is None else "")
        try:
            pixels = np.asarray(dataset.inputs[index])
            if dataset.masks is not None:
                pixels = _with_mask(pixels, np.asarray(dataset.masks[index]), dataset.ignore_index)
        except (UnreadableError, OSError, ValueError):
            continue
        caption = title[:34] if title else dataset.ids[index].rsplit("/", 1)[-1][:34]
        if dataset.boxes is None:
            cells.append(Cell(pixels, caption))
            continue
        height, width = pixels.shape[:2]
        view: View = draw_view([RandomResizedCrop(64)], (width, height), sample_generator(seed, 0, index))
        boxes = dataset.boxes.take(np.array([index]))
        share = float(objectness_of(boxes, [view])[0])
        K = max(2, len(dataset.classes))
        target = adaptive_targets([label], [share], K, beta)[0]
        first, other = float(target[max(label, 0)]), float(target[(max(label, 0) + 1) % K])
        caption += f"\nobjectness {share:.2f}\ntarget {first:.2f}, others {other:.3g}"
        names = [dataset.classes[k] if k >= 0 else "?" for k in boxes.labels]
        cells.append(Cell(pixels, caption, boxes[0], names, view.crop))
    return cells


def _with_mask(pixels: np.ndarray, mask: np.ndarray, ignored: int | None) -> np.ndarray:
    """Classes as colours over the picture; pixels without a class stay as they are."""
    palette = np.random.default_rng(7).integers(40, 255, (256, 3))
    blend = (0.45 * pixels + 0.55 * palette[mask.astype(np.uint8)]).astype(np.uint8)
    return np.where((mask == ignored)[..., None], pixels, blend) if ignored is not None else blend
