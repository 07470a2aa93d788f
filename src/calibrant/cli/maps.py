"""``calibrant maps``: one image of a data set with masks, by the networks of several runs."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from calibrant.base.numbers import number, percent
from calibrant.cli.console import print_json, print_table, remark
from calibrant.cli.options import Data, Json, Quiet, TrustCode, check_kind, command_line, trusts_run


def maps_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs on masks, NAME=RUN to name one; or a comparison, for a run of each of its methods.",
        ),
    ],
    image: Annotated[str, typer.Option(help="Id of the image in its data set, or the end of that id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write.")] = Path("maps.html"),
    data: Data = None,
    split: Annotated[str | None, typer.Option(help="The split; the recipe's test split if left out.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a comparison's runs; its first if left out.")] = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw one image by several methods: predictions, confidence, the uncertainty of wrong pixels, reliability.

    Wrong pixels are ranked by confidence and by normalised logits, side by side.
    """
    check_kind(output, "a page", ".html", ".htm", inputs=[*runs, data])
    from calibrant.experiments import image_maps, named_runs
    from calibrant.report import write_maps_page

    folders = named_runs(runs, seed)
    trusted = all(trusts_run(folder, trust_code) for folder in folders.values())
    maps = image_maps(folders, image, data=data, split=split, trust_code=trusted)
    command = command_line()
    write_maps_page(output, maps, created=datetime.date.today().isoformat(), command=command)
    if as_json:
        numbers = {method.name: dict(method.numbers) for method in maps.methods}
        print_json({"image": maps.image, "pixels": maps.pixels, "methods": numbers, "file": str(output)})
    elif not quiet:
        shares = ("accuracy", "mean_iou", "ece", "wrong_rank", "normalised_wrong_rank")
        areas = ("aurc", "normalised_aurc")
        rows = [
            [m.name, *(percent(m.numbers[key]) for key in shares), *(number(m.numbers[key]) for key in areas)]
            for m in maps.methods
        ]
        head = ["", "accuracy", "mean IoU", "ECE", "rank of wrong", "normalised", "AURC", "normalised"]
        print_table(f"{maps.image}, {maps.pixels:,} pixels", head, rows)
    remark(f"open {output}", quiet)
