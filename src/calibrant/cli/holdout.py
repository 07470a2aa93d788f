"""``calibrant holdout``: one labelled file as two, to fit on and to judge by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.auditing import CommandWords
from calibrant.base.files import check_output
from calibrant.base.numbers import count
from calibrant.cli.console import print_json, print_line, remark, say
from calibrant.cli.options import (
    ClassNames,
    Column,
    IgnoreIndex,
    Json,
    Positive,
    Quiet,
    Repeats,
    Segmentation,
    Split,
    open_for_policy,
    parse_opening,
    reading_words,
    share_option,
)
from calibrant.cli.schema import versioned
from calibrant.predictions import UNITS, format_of, resolve_repeats

NEXT = "Fit on the one, judge by the other:"


def holdout_command(
    files: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Labelled predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder or a quoted glob.",
        ),
    ],
    output: Annotated[
        tuple[Path, Path],
        typer.Option("--output", "-o", metavar="FIT JUDGE", help="Two files to write: to fit on, and to judge by."),
    ],
    share: Annotated[float, share_option("Share of the samples to fit on.")] = 0.5,
    by: Annotated[
        str | None,
        typer.Option(help="Keep rows with the same value of this column together, such as a patient's (default: ids)."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A further column to keep in the two files (repeat for more).")
    ] = None,
    split: Split = None,
    repeats: Repeats = None,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Divide labelled predictions at random into two files: one to fit a policy on, one to judge it by.

    For where there is one labelled file only: a policy must not be judged by the samples that it was fitted on.
    """
    fit, judge = output
    if fit.resolve() == judge.resolve():
        raise ValueError(f"--output {fit} {judge}: the two parts must be different files")
    for path in output:
        format_of(path)
        check_output(path, inputs=[files])
    groups = [*(group or []), *([] if by is None else [by])]
    opening = parse_opening(column, class_names, positive, segmentation, ignore_index, split)
    predictions = open_for_policy(None, files, groups=list(dict.fromkeys(groups)) or None, **opening)
    if repeats is not None:
        predictions = resolve_repeats(predictions, repeats)
    parts = predictions.holdout(share, seed=seed, by=by)
    for path, part in zip(output, parts, strict=True):
        part.save(path)
    # What files of CSV cannot hold is said again; the others hold it, and agree.
    reading = reading_words(None, None, positive, False, ignore_index)
    options = ("--repeats", "first") if any(part.repeats for part in parts) else ()  # without which a fit is refused
    step = CommandWords({}, reading=reading, repeats=options).fit_and_judge(str(fit), str(judge))
    if as_json:
        written = [{"path": str(path), "samples": len(part)} for path, part in zip(output, parts, strict=True)]
        facts = {"fit": written[0], "judge": written[1], "share": share, "by": by, "seed": seed}
        print_json(versioned("holdout", {**facts, "next": {"text": NEXT, "command": step}}))
    elif not quiet:
        unit = UNITS[predictions.kind][0]
        say(f"{count(len(parts[0]))} {unit} to fit on, {count(len(parts[1]))} to judge by.")
        print_line()
        say(f"Next: {NEXT}")
        print_line(f"  {step}")
    for path in output:
        remark(f"wrote {path}", quiet)
