"""``calibrant apply``: a policy's answers about a file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.common import (
    ClassNames,
    Column,
    IgnoreIndex,
    Json,
    Quiet,
    Segmentation,
    batch_progress,
    how_to_open,
    print_json,
    remark,
    say,
)
from calibrant.predictions import Predictions
from calibrant.selective import Policy
from calibrant.selective.applied import FORMATS, apply_policy


def apply_command(
    policy: Annotated[Path, typer.Argument(help="A policy that calibrant fit wrote.", show_default=False)],
    files: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder of shards or a quoted glob; labels "
            "may be missing.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Decisions to write: .parquet or .csv; .npz for segmentation.")
    ] = Path("decisions.parquet"),
    column: Column = None,
    class_names: ClassNames = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say for every sample which class, how sure, and whether to answer at all.

    Writes a row per sample: id, label, class_name, confidence, accept. Where the true labels are known, the error rate
    of the answers is printed as well.
    """
    if output.suffix.lower() not in FORMATS:
        raise ValueError(f"--output {output}: decisions are written as {', '.join(FORMATS)}, got {output.suffix!r}")
    fitted = Policy.load(policy)
    opening = how_to_open(column, class_names, segmentation, ignore_index)
    groups = None if fitted.group is None else [fitted.group]
    predictions = Predictions.open(files, groups=groups, unlabelled=True, **opening)
    total = len(predictions)
    found = apply_policy(
        fitted, predictions, output, progress=lambda items, what: batch_progress(items, total, what, quiet)
    )
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        for sentence in found.sentences():
            say(sentence)
    remark(f"wrote {output}", quiet)
