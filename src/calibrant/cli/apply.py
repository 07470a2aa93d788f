"""``calibrant apply``: a policy's answers about a file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.base.files import check_output
from calibrant.base.numbers import count, percent
from calibrant.cli.console import print_class_coverage, print_json, print_table, remark, say, show_progress
from calibrant.cli.options import (
    Address,
    ClassNames,
    Column,
    Engine,
    FailOn,
    IgnoreIndex,
    Json,
    Positive,
    Quiet,
    Segmentation,
    Split,
    SpreadsheetSafe,
    check_fail_on,
    open_for_policy,
    parse_opening,
    pass_engine,
)
from calibrant.cli.schema import versioned
from calibrant.policy import FORMATS, Outcome, Policy, apply_policy
from calibrant.predictions import repeat_words


def apply_command(
    policy: Annotated[Path, typer.Argument(help="A policy that calibrant fit wrote.")],
    files: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder of shards or a quoted glob; labels "
            "may be missing.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Decisions to write: .parquet or .csv (decisions.parquet if not given); .npz for masks.",
        ),
    ] = None,
    split: Split = None,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    engine: Engine = "local",
    address: Address = None,
    fail_on: FailOn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the class and the confidence of every sample, and whether to answer or abstain.

    Writes a row per sample: id, label, class_name, confidence, accept, and the prediction set where the policy has them
    (set_size, set). Where the true labels are known, the error rate of the answers is printed as well.
    """
    check_fail_on(fail_on, True)
    fitted = Policy.load(policy)
    masks = fitted.kind == "segmentation"
    path = output or Path("decisions.npz" if masks else "decisions.parquet")
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"--output {path}: decisions are written as {', '.join(FORMATS)}, got {path.suffix!r}")
    if masks and path.suffix.lower() != ".npz":
        raise ValueError(f"--output {path}: decisions about pixels are arrays, written as .npz, got {path.suffix!r}")
    check_output(path, inputs=[policy, files])
    ignored = fitted.evidence.get("ignore_index") if ignore_index is None else ignore_index
    opening = parse_opening(
        column, class_names, positive, segmentation or masks, ignored if isinstance(ignored, int) else None, split
    )
    groups = None if fitted.group is None else [fitted.group]
    predictions = open_for_policy(fitted, files, groups=groups, unlabelled=True, **opening)
    with pass_engine(engine, address) as reader, show_progress(quiet) as progress:
        outcome = apply_policy(
            fitted, predictions, path, spreadsheet_safe=spreadsheet_safe, progress=progress, engine=reader
        )
    if as_json:
        print_json(versioned("apply", outcome.to_dict()))
    elif not quiet:
        print_outcome(outcome)
    if outcome.repeats:
        words = repeat_words(outcome.repeats, len(predictions), predictions.kind)
        remark(f"note: {words}; whether the promise is kept is judged as if all were independent", quiet)
    if outcome.labelled and predictions.weighted:
        remark("note: the importance weights are not used: a promise is of samples that were drawn alike", quiet)
    remark(f"wrote {path}", quiet)
    if fail_on is not None and "no" in (outcome.promise_kept, outcome.sets_hold):
        raise typer.Exit(1)


def print_outcome(outcome: Outcome) -> None:
    """What the policy did, and by group if it has thresholds for each, on standard output."""
    for sentence in outcome.sentences():
        say(sentence)
    if outcome.policy.sets is not None and outcome.sets is not None:
        say(f"Prediction sets by {outcome.policy.sets.title}:")
        for sentence in outcome.set_sentences():
            say(sentence)
        print_class_coverage(outcome.sets, outcome.policy.class_names)
    parts = outcome.groups if outcome.policy.classes is None else outcome.classes
    if parts:
        rows = [
            [name, count(n), percent(accepted / n if n else None),
             percent(errors / accepted if accepted and outcome.labelled else None)]
            for name, (n, accepted, errors) in parts.items()
        ]  # fmt: skip
        print_table(f"\nBy {outcome.policy.part_column}", ["", "samples", "answered", "wrong answers"], rows)
