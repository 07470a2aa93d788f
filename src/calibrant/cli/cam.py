"""``calibrant cam``: class activation maps of runs side by side, and how much of them lies on the objects."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import calibrant
from calibrant.base.files import check_output
from calibrant.base.numbers import count, difference, difference_span, percent, round_percent, span
from calibrant.cli.console import print_json, print_line, print_table, remark, say, show_progress
from calibrant.cli.options import Accelerator, Data, Json, Quiet, TrustCode, command_line, invocation, trusts_run

#: Rows of pictures that a page holds: each is a few dozen kilobytes for each run.
MOST_IMAGES = 200


def cam_command(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Folders of finished runs, NAME=RUN to name one.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page; .svg, .png or .pdf writes the figure alone.")
    ] = Path("cam.html"),
    images: Annotated[
        list[str] | None, typer.Option(metavar="ID ID ...", help="Which images to show, by their names.")
    ] = None,
    number: Annotated[
        int,
        typer.Option("--count", help="How many images to show: the first ones, or drawn at random with --seed.", min=1),
    ] = 6,
    seed: Annotated[int | None, typer.Option(help="Draw the images with this seed.", min=0)] = None,
    split: Annotated[
        str | None, typer.Option("--set", help="The set of the runs, such as context; test if left out.")
    ] = None,
    measured: Annotated[
        int, typer.Option("--measure", help="How many images the share inside the boxes is measured on.", min=0)
    ] = 500,
    explain: Annotated[str, typer.Option(help="The class whose map is drawn: predicted or label.")] = "predicted",
    layer: Annotated[
        str | None, typer.Option(help="The layer by its name; the last convolutional block if left out.")
    ] = None,
    data: Data = None,
    accelerator: Accelerator = "auto",
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw where the networks of runs look: class activation maps, and the share of them on the objects.

    Rows are images, each followed by its version without objects where the data have boxes; columns are runs. Below
    each map are the three most likely classes. Grad-CAM++ needs the extra cam.
    """
    ids = _collect_values("--images", images or [])
    folders = [word for word in words or () if word not in ids]
    if not folders:
        raise ValueError("name the folders of the runs first: calibrant cam RUN RUN --images ID ID")
    if number > MOST_IMAGES or len(ids) > MOST_IMAGES:
        raise ValueError(f"a page shows at most {MOST_IMAGES} images, got {max(number, len(ids))}")
    check_output(output, inputs=[*folders, data])
    from calibrant.experiments import ChosenImages, study_activation_maps
    from calibrant.report import draw_activation_maps, figure_path, in_style, save_figure, write_activation_page

    is_figure = output.suffix.lower() not in (".html", ".htm")
    if is_figure:
        figure_path(output)
    runs = _runs_by_name(folders)
    trusted = all(trusts_run(run, trust_code) for run in runs.values())
    with show_progress(quiet) as progress:
        study = study_activation_maps(
            runs, ChosenImages(ids, number, seed, measured), data=data, split=split, layer=layer,
            explained=_parse_explained(explain), accelerator=accelerator, trust_code=trusted, progress=progress,
        )  # fmt: skip
    about = {
        "calibrant": calibrant.__version__, "created": datetime.date.today().isoformat(),
        "reproduce": command_line(),
    }  # fmt: skip
    if is_figure:
        with in_style():
            save_figure(draw_activation_maps(study.document, study.pictures), output)
    else:
        write_activation_page(output, study.document | about, study.pictures)
    if as_json:
        from calibrant.base.files import json_value

        print_json(json_value(study.document | about | {"file": str(output)}))
    elif not quiet:
        _print(study.document)
    remark(f"open {output}", quiet)


def _collect_values(option: str, values: list[str]) -> list[str]:
    """The values of an option, and the words that follow each of them: ``--images 3 17 25``."""
    ids: list[str] = []
    taking = False
    for word in invocation:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            taking = name == option
            ids += [value] if taking and equals else []
        elif taking:
            ids.append(word)
    return ids or values


def _runs_by_name(words: list[str]) -> dict[str, Path]:
    """Folders of runs by the names of their columns: ``NAME=RUN``, or the folder's own name.

    Where two columns would have the same name, it is the whole path.
    """
    from calibrant.experiments import split_name

    runs = [split_name(word) for word in dict.fromkeys(words)]
    names = [name or path.resolve().name for name, path in runs]
    return {name if names.count(name) == 1 else str(path): path for name, (_, path) in zip(names, runs, strict=True)}


def _parse_explained(text: str) -> Literal["predicted", "label"]:
    if text == "predicted":
        return "predicted"
    if text == "label":
        return "label"
    raise ValueError(f"--explain takes predicted or label, got {text[:40]!r}")


def _print(document: Mapping[str, Any]) -> None:
    if not document["has_boxes"]:
        from calibrant.report import NO_BOXES

        say(NO_BOXES)
    if not document["measured"]:
        return
    level = f"{round_percent(document['level'])} interval"
    rows = []
    for method in document["methods"]:
        value, low, high = (method["inside"][end] for end in ("value", "low", "high"))
        rows.append((method["name"], percent(value), span(low, high, "share", value), count(method["images"])))
    title = f"Share of the maps inside the boxes, {count(document['measured'])} images of {document['set']}"
    print_table(title, ("run", "inside", level, "images"), rows)
    values = {method["name"]: method["inside"]["value"] for method in document["methods"]}
    pairs = []
    for pair in document["differences"]:
        shares = [values[pair["first"]], values[pair["second"]]]
        change = difference(pair["value"], "share", shares), difference_span(pair["low"], pair["high"], "share", shares)
        pairs.append((f"{pair['second']} - {pair['first']}", *change, count(pair["images"])))
    if pairs:
        print_line()
        print_table("Differences on the same images", ("runs", "difference", level, "images"), pairs)
    print_line()
    say(f"The boxes fill {percent(document['area'])} of these images: an even map would have as much inside.")
