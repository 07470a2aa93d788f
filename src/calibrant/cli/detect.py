"""``calibrant detect``: classifiers compared by the detectors that are trained on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.console import continuable, print_json, print_results, remark
from calibrant.cli.options import REFERENCES, Accelerator, Data, Json, Quiet, RecipeFile, command_line, parse_seeds
from calibrant.cli.train import TrainingBar

#: The metrics that are printed for an epoch.
SHOWN = ("ap", "ap50", "ap75", "ar100")


def detect_command(
    recipe: RecipeFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for runs, results, tables and the page.")],
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=RUN: the network of a finished run, or NAME=FILE: weights for the recipe's network (repeat for "
            "more; the same name again is taken by the next seed)."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Number of seeds (3 means 0 to 2), or a list: 0,1,7.")] = "3",
    data: Data = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value: detection.pyramid=true, training.epochs=4 (repeat for more)."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The backbone that others are tested against; hard or ce if left out.")
    ] = None,
    devices: Annotated[int, typer.Option(help="Processes or GPUs per machine.", min=1, max=1024)] = 1,
    nodes: Annotated[int, typer.Option(help="Machines.", min=1, max=1024)] = 1,
    accelerator: Accelerator = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a detector on every backbone with every seed, and compare them; run it again to continue.

    After an interruption, even by kill -9, the same command continues from the last checkpoint; finished runs are not
    repeated.
    """
    from calibrant.base.files import json_value
    from calibrant.detection import check_detection, read_backbones
    from calibrant.experiments import (
        as_plain,
        check_detectors,
        compare_detectors,
        default_reference,
        detector_tables,
        write_detectors,
    )
    from calibrant.training import load

    plan, numbers = load(recipe, settings or ()), parse_seeds(seeds)
    check_detection(plan, str(recipe))
    check_detectors(output)
    backbones = read_backbones(backbone or [], plan)
    names = list(backbones)
    if reference is not None and reference not in names:
        raise ValueError(f"--reference {reference!r} is not one of the backbones: {', '.join(names)}")
    if devices * nodes > 1 and len(names) * len(numbers) > 1:
        raise ValueError(
            "several processes train one detector at a time: run the command for each detector, with one --backbone, "
            "one seed (--seeds 0,) and the same folder, and then once for all of them with --devices 1 for the tables"
        )
    bars: list[TrainingBar] = []

    def follow(name: str, seed: int) -> TrainingBar:
        for bar in bars:
            bar.__exit__()
        remark(f"{name}, seed {seed}", quiet)
        bars[:] = [TrainingBar(quiet, SHOWN)]
        return bars[0]

    try:
        with continuable(quiet):
            results = compare_detectors(
                plan, backbones, numbers, output, data=data, event_log=follow, devices=devices, nodes=nodes,
                accelerator=accelerator,
            )  # fmt: skip
    finally:
        for bar in bars:
            bar.__exit__()
    if not bars[0].is_first:  # of several processes
        return
    against = reference or default_reference(names, REFERENCES)
    pages = detector_tables(results, plan, against)
    page = write_detectors(pages, plan, backbones, output, command=command_line())
    if as_json:
        print_json(json_value({"folder": str(output), "backbones": as_plain(results)}))
    elif not quiet:
        print_results(pages.values())
    remark(f"open {page}; every number is in {output / 'results.csv'}", quiet)
