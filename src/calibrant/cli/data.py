"""``calibrant data``: look at a data set, and write its masked variants."""

from __future__ import annotations

from calibrant.base.checks import listing, printable
from calibrant.base.extras import needs_torch  # noqa: F401

# isort: split

import datetime
import enum
import re
from pathlib import Path
from typing import Annotated, Any

import typer

import calibrant
from calibrant.base.files import parse_json
from calibrant.cli.console import print_json, print_line, print_table, remark, say, show_progress
from calibrant.cli.options import Json, Quiet, command_line
from calibrant.data import (
    NO_CLASS_PIXELS,
    Inspection,
    Layout,
    OnError,
    SplitFacts,
    check_folder,
    check_images,
    check_writable,
    context_only,
    inspect,
    layouts,
    need_boxes,
    pixel_mean,
    recognise,
    single_object,
    write_dataset,
)
from calibrant.report import check_page_folder

app = typer.Typer(help="Data sets: look at one, or write its masked variants.", rich_markup_mode=None)

LayoutName = Annotated[str | None, typer.Option("--layout", help="Layout of the files on disk; detected if left out.")]
Split = Annotated[list[str] | None, typer.Option(help="Only this split (repeat for more).")]
Option = Annotated[
    list[str] | None,
    typer.Option(
        help='An option of the layout\'s reader, as only_annotated=false or rename=\'{"trash can": "trashcan"}\' '
        "(repeat for more)."
    ),
]
#: Classes that are printed one by one.
PRINTED_CLASSES = 30
#: Pictures that fit on a contact sheet: matplotlib draws no image of more than 65,535 pixels a side.
MOST_PICTURES = 500


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
    split: Split = None,
    layout: LayoutName = None,
    option: Option = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the page, the contact sheet and the figures.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Pictures on the contact sheet.", min=1)] = 24,
    beta: Annotated[float, typer.Option(help="Beta of the adaptive targets on the contact sheet.")] = 1.0,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image, to find all broken ones.")] = False,
    seed: Annotated[int, typer.Option(help="Seed for choosing the pictures of the contact sheet.", min=0)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count classes, boxes and objectness of a data set, list what is broken or odd, and draw a contact sheet.

    Broken samples are skipped, counted and listed. Without -o nothing is written.
    """
    options = _options(option or [])
    if output is not None:
        check_page_folder(output)
    if samples > MOST_PICTURES:
        raise ValueError(f"--samples must be at most {MOST_PICTURES}, got {samples}")
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"--beta must be between 0 and 1, got {beta}")
    kind, root = recognise(path, layout)
    splits = _select_splits(kind, root, split, quiet)
    with show_progress(quiet) as progress:
        inspection, datasets = inspect(kind, root, splits, decode=decode, progress=progress, options=options)
    document = inspection.to_json()
    if output is not None:
        from calibrant.cli.contact_sheet import contact_sheet  # here and below: they bring matplotlib along
        from calibrant.report import write_data_page

        sheets = {name: contact_sheet(dataset, samples, beta, seed) for name, dataset in datasets.items()}
        pictures = {name: sheet for name, sheet in sheets.items() if sheet is not None}
        about = {
            "calibrant": calibrant.__version__,
            "created": datetime.date.today().isoformat(),
            "reproduce": command_line(),
        }
        document["files"] = write_data_page(output, document | about, pictures)
    if as_json:
        print_json(document)
    elif not quiet:
        _print(inspection)
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
    split: Split = None,
    layout: LayoutName = None,
    option: Option = None,
    fill: Annotated[
        str | None,
        typer.Option(help="Colour of covered objects as red,green,blue; the first split's mean pixel if left out."),
    ] = None,
    image_format: Annotated[str, typer.Option("--format", help="png keeps the pixels, jpg is smaller.")] = "png",
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Skip broken samples and list them instead of stopping.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a masked variant of a data set (ALS, Fig. 4) as a data set of its own.

    The objects are covered by the mean pixel. Run again after an interruption, it continues where it stopped.
    """
    colour, options = _colour(fill) if fill is not None else None, _options(option or [])
    check_folder(output, image_format)
    kind, root = recognise(path, layout)
    splits = _select_splits(kind, root, split, quiet)
    on_error: OnError = "skip" if skip_broken else "raise"
    datasets = {name: kind.open(root, name, on_error, options) for name in splits}
    for dataset in datasets.values():
        need_boxes(dataset)
        if not skip_broken:  # else its reader has looked at them
            with show_progress(quiet) as progress:
                check_images(dataset, progress)
    if colour is None:
        first_dataset = datasets[splits[0]]
        remark(f"mean pixel of {first_dataset.title}", quiet)
        colour = pixel_mean(first_dataset, limit=None)
    make = single_object if variant is Variant.single_object else context_only
    variants = {name: make(dataset, colour) for name, dataset in datasets.items()}
    made_from: dict[str, dict[str, Any]] = {
        name: {"variant": variant.value, "data": dataset.name, "fill": list(colour)}
        for name, dataset in datasets.items()
    }
    for name, dataset in variants.items():  # nothing is written before all of it can be
        check_writable(dataset, output, image_format=image_format, made_from=made_from[name])
    outputs = {}
    for name, dataset in variants.items():
        with show_progress(quiet) as progress:
            table = write_dataset(
                dataset,
                output,
                image_format=image_format,  # type: ignore[arg-type]  # checked above
                made_from=made_from[name],
                progress=progress,
            )
        outputs[name] = {"samples": len(dataset), "table": str(table), "of": len(datasets[name])}
        for line in datasets[name].report.lines():
            remark(f"{name}: {line}", quiet)
    if as_json:
        print_json({"variant": variant.value, "fill": list(colour), "splits": outputs})
    elif not quiet:
        rows = [(name, str(facts["of"]), str(facts["samples"]), str(facts["table"])) for name, facts in outputs.items()]
        print_table(f"{variant.value}, covered by {colour}", ("split", "samples before", "after", "table"), rows)


def _select_splits(kind: Layout, root: Path, requested: list[str] | None, quiet: bool) -> list[str]:
    """The splits that were asked for, each once, or the plain ones."""
    if not requested:
        return _plain_splits(kind, root, quiet)
    splits = kind.splits(root)
    if unknown := [name for name in requested if name not in splits]:
        raise ValueError(f"{root}: split {unknown[0]!r} was asked for, and {kind.name} has {listing(splits)}")
    return list(dict.fromkeys(requested))


def _plain_splits(kind: Layout, root: Path, quiet: bool) -> list[str]:
    """The splits, without those that repeat others under one name."""
    usual = ("train", "val", "validation", "test")
    splits = sorted(kind.splits(root), key=lambda name: usual.index(name) if name in usual else len(usual))
    repeating = {"all"} if len(splits) > 1 else set()
    if {"train", "val"} <= set(splits):
        repeating.add("trainval")
    if left_out := [name for name in splits if name in repeating]:
        remark(f"left out because it repeats the others: {', '.join(left_out)} (--split {left_out[0]} shows it)", quiet)
    return [name for name in splits if name not in repeating]


def _options(words: list[str]) -> dict[str, Any]:
    """``key=value`` as options of a reader; values are JSON where they can be, else text."""
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--option takes name=value, got {word[:200]!r}")
        if name in options:
            raise ValueError(f"--option {name} is given twice")
        try:
            options[name] = parse_json(value, "JSON")
        except ValueError as error:
            if value.lstrip().startswith(("[", "{", '"')):  # meant as JSON
                raise ValueError(f"--option {name}: {error}") from error
            options[name] = value
    return options


def _colour(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(re.fullmatch(r"\s*[0-9]{1,3}\s*", part) and int(part) < 256 for part in parts):
        raise ValueError(f"--fill takes three numbers from 0 to 255 as red,green,blue, got {text[:60]!r}")
    red, green, blue = (int(part) for part in parts)
    return red, green, blue


def _print(inspection: Inspection) -> None:
    say(f"{inspection.name} ({inspection.layout}) in {inspection.root}: {inspection.headline}")
    print_line()
    rows = []
    for name, facts in inspection.splits.items():
        counts = list(facts.class_counts.values()) or [0]
        boxes = facts.boxes
        rows.append((
            name, str(facts.samples), str(len(facts.class_counts or [k for k in facts.pixels if k != NO_CLASS_PIXELS])),
            f"{min(counts)}-{max(counts)}" if facts.class_counts else "-",
            _size(facts), str(boxes["number"]) if boxes else "-",
            f"{boxes['mean_objectness']:.3f}" if boxes else "-",
        ))  # fmt: skip
    print_table("Splits", ("split", "samples", "classes", "per class", "size", "boxes", "objectness"), rows)
    for name, facts in inspection.splits.items():
        if boxes := facts.boxes:
            say(f"{name}: {_describe_boxes(boxes)}", indent=2)
    _print_classes(inspection)
    for name, facts in inspection.splits.items():
        if facts.boxes.get("number"):
            _print_histograms(name, facts)
    print_line()
    for splits, line in _findings(inspection, 3) or [("all splits", "nothing skipped, nothing odd")]:
        say(f"{splits}: {line}", indent=2)


def _describe_boxes(boxes: dict[str, Any]) -> str:
    return (
        f"{boxes['number']} boxes, {boxes['crowds']} of them crowds, {boxes['without_area']} without area; "
        f"{boxes['images_with_several']} images with several boxes, "
        f"{boxes['images_with_several_classes']} with several classes"
    )


def _findings(inspection: Inspection, places: int) -> list[tuple[str, str]]:
    """Which splits, and what; a finding about all of a data set is said once."""
    lines: dict[str, list[str]] = {}
    for name, facts in inspection.splits.items():
        for line in facts.report.lines(places):
            lines.setdefault(line, []).append(name)
    rows = [(", ".join(splits), line) for line, splits in lines.items()]
    return rows + [("across splits", line) for line in inspection.across.lines(places)]


def _size(facts: SplitFacts) -> str:
    if "width_min" in facts.sizes:
        s = facts.sizes
        low, high = f"{s['width_min']}x{s['height_min']}", f"{s['width_max']}x{s['height_max']}"
        return low if low == high else f"{low} to {high}"
    return " to ".join(str(facts.sizes[k]) for k in ("shortest", "longest")) + " characters" if facts.sizes else "-"


def _print_classes(inspection: Inspection) -> None:
    pixels = any(facts.pixels for facts in inspection.splits.values())
    tables = {name: facts.pixels if pixels else facts.class_counts for name, facts in inspection.splits.items()}
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    if not names:
        return
    # The largest and the smallest are what matters where there are too many to read.
    size = {name: sum(table.get(name, 0) for table in tables.values()) for name in names}
    classes = names
    if len(names) > PRINTED_CLASSES:
        ordered = sorted(names, key=lambda name: -size[name])
        classes = [*ordered[: PRINTED_CLASSES // 2], *ordered[-(PRINTED_CLASSES // 2) :]]
    title = "Share of pixels" if pixels else "Samples of each class"
    if len(classes) < len(names):
        title += f" ({len(classes)} of {len(names)}: the largest and the smallest)"
    objects = {name: facts.boxes["by_class"] for name, facts in inspection.splits.items() if facts.boxes.get("number")}
    rows = []
    for name in classes:
        cells = [f"{table.get(name, 0):.4f}" if pixels else str(table.get(name, 0)) for table in tables.values()]
        rows.append((printable(name, 60), *cells, *(str(table.get(name, 0)) for table in objects.values())))
    if len(classes) < len(names):
        rows.insert(len(classes) // 2, ("...",) + ("",) * (len(rows[0]) - 1))
    print_line()
    print_table(title, ("class", *tables, *(f"boxes in {name}" for name in objects)), rows)


def _print_histograms(name: str, facts: SplitFacts) -> None:
    boxes = facts.boxes
    edges = boxes["edges"]
    print_line()
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
