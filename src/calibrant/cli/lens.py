"""``calibrant lens``: the label that each loss effectively trains towards."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant.base.files import check_output
from calibrant.base.numbers import ABSENT, count, difference, number, percent
from calibrant.base.progress import track
from calibrant.cli.console import print_json, print_table, remark, show_progress
from calibrant.cli.options import Json, Quiet, parse_losses, parse_numbers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from calibrant._lens import Lens
    from calibrant.losses import Loss

    Row = npt.NDArray[np.float64]

LOSSES = "ls,mbls,mdca,cpc,acls"
MOST_CLASSES = 1000  # of one sample on the command line
MOST_SAMPLES = 2**20  # of a batch


def lens_command(
    losses: Annotated[
        str, typer.Option(help="Losses by name, with parameters after colons: ls,acls:margin=6:variant=paper.")
    ] = LOSSES,
    logits: Annotated[str, typer.Option(help="Logits of one sample, separated by commas.")] = "8,4,1,0",
    label: Annotated[int, typer.Option(help="Its class, counted from 0.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Figure to draw (.png, .svg or .pdf; lens.png if not given), or 'none'."),
    ] = None,
    predictions: Annotated[
        str | None,
        typer.Option(help="Predictions with logits (any format that audit reads): how often each loss is active."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="With --predictions: samples per batch.")] = 256,
    step: Annotated[float, typer.Option(help="With --predictions: size of the gradient step on the logits.")] = 1.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what label each loss really trains towards: effective label q', smoothing f and indicator C.

    Prints them for one sample and draws the comparison of ACLS Fig. 1. Losses that compare the samples of a batch see
    a batch of this one sample.

    With --predictions, report instead for what share of the samples each loss moves the label at all, and how often a
    gradient step on the logits would change the predicted class.
    """
    parsed = parse_losses(losses)
    if predictions is not None:
        if output is not None:
            raise ValueError("--output draws the lens of one sample: leave it out with --predictions")
        _report_activity(parsed, predictions, batch_size, step, as_json, quiet)
        return
    row = parse_numbers(logits, "--logits")
    if not 2 <= len(row) <= MOST_CLASSES:
        raise ValueError(f"--logits must be from 2 to {MOST_CLASSES:,} numbers, got {len(row):,}")
    if not 0 <= label < len(row):
        raise ValueError(f"--label must lie in 0..{len(row) - 1} for {len(row)} logits, got {label}")
    figure = None if str(output) == "none" else output or Path("lens.png")
    if figure is not None:
        from calibrant.report import figure_path  # here, because it brings matplotlib along

        check_output(figure_path(figure))
    lenses = look(parsed, row, label)
    if figure is not None:
        draw(figure, parsed, lenses, row, label)
    if as_json:
        print_json({name: {k: v[0].tolist() for k, v in vars(lens).items()} for name, lens in lenses.items()})
    elif not quiet:
        _print_lenses(lenses, row, label)
    if figure is not None:
        remark(f"wrote {figure}", quiet)


def look(losses: dict[str, Loss], logits: list[float], label: int) -> dict[str, Lens]:
    """The lens of each loss on one sample."""
    import torch  # here and below, because it takes seconds

    from calibrant._lens import lens

    z, y = torch.tensor([logits], dtype=torch.float64), torch.tensor([label])
    lenses = {name: lens(loss, z, y) for name, loss in losses.items()}
    for name, result in lenses.items():
        if not bool(torch.isfinite(result.effective).all()):
            raise ValueError(
                f"loss {name!r} has no finite gradient for these logits: give smaller ones or smaller parameters"
            )
    return lenses


def _print_lenses(lenses: dict[str, Lens], logits: list[float], label: int) -> None:
    """The table of effective labels, of f C and of C."""
    any_lens = next(iter(lenses.values()))
    predicted = int(any_lens.probs.argmax())
    marks = [("label" if j == label else "") + ("^" if j == predicted else "") for j in range(len(logits))]
    head = ["", *(f"z={z:g} {mark}".strip() for z, mark in zip(logits, marks, strict=True))]
    rows = [["probabilities p", *_texts(any_lens.probs[0])], ["given label q", *_texts(any_lens.target[0])]]
    rows += [[f"{name}: effective q'", *_texts(lens.effective[0])] for name, lens in lenses.items()]
    print_table("What each loss trains towards (^ predicted class)", head, rows)
    rows = [[name, *_smoothing_texts(lens)] for name, lens in lenses.items()]
    print_table("\nSmoothing f: lowered at ^, raised elsewhere (- where the indicator C is 0)", head, rows)


def draw(path: Path, losses: dict[str, Loss], lenses: dict[str, Lens], logits: list[float], label: int) -> None:
    """The figure: effective labels, and f at the predicted class as the confidence grows."""
    from calibrant.report import draw_lens  # here, because it brings matplotlib along

    any_lens = next(iter(lenses.values()))
    draw_lens(
        path,
        logits=logits,
        label=label,
        probs=any_lens.probs[0].numpy(),
        target=any_lens.target[0].numpy(),
        effective={name: lens.effective[0].numpy() for name, lens in lenses.items()},
        sweep=sweep(losses, logits, label) if len(logits) > 1 else None,
    )


def sweep(losses: dict[str, Loss], logits: list[float], label: int) -> tuple[Row, dict[str, Row]]:
    """The product f C at the predicted class while its logit rises from a tie to 16 above the next one."""
    import torch

    from calibrant._lens import lens

    z = torch.tensor(logits, dtype=torch.float64)
    predicted = int(z.argmax())
    second = torch.cat([z[:predicted], z[predicted + 1 :]]).max()
    rows = z.repeat(120, 1)
    rows[:, predicted] = second + torch.linspace(0.02, 16.0, 120, dtype=torch.float64)
    confidence = rows.softmax(1)[:, predicted].clamp(max=math.nextafter(1.0, 0.0)).numpy()
    lowered = {}
    for name, loss in losses.items():
        values = [lens(loss, row[None], torch.tensor([label])).smoothing[0, predicted] for row in rows]
        lowered[name] = torch.stack(values).numpy()
    return confidence, lowered


def _report_activity(
    losses: dict[str, Loss], path: str, batch_size: int, step: float, as_json: bool, quiet: bool
) -> None:
    if batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {batch_size}")
    if batch_size > MOST_SAMPLES:
        raise ValueError(f"--batch-size must be at most {MOST_SAMPLES:,}, got {batch_size:,}")
    import torch

    from calibrant._lens import activity
    from calibrant.predictions import Logits, Predictions

    data = Predictions.open(path, columns={"split": None})
    if data.data_type is not Logits:
        raise ValueError(f"{path}: a lens looks at logits, the file holds {data.holds}")
    if data.kind != "classification":
        raise ValueError(f"{path}: a lens looks at classifications, the file holds {data.kind}")
    if data.weighted:
        remark("note: the importance weights are not used: samples are counted", quiet)
    batches = ((torch.from_numpy(b.logits), torch.from_numpy(b.labels)) for b in data.batches(batch_size))
    total = -(-len(data) // batch_size)
    with show_progress(quiet) as progress:
        shares = activity(losses, track(batches, "looking", total, progress), step=step)
    for name, share in shares.items():
        if not math.isfinite(share.lowered):
            raise ValueError(f"loss {name!r} has no finite gradient for these logits: give smaller parameters")
    if as_json:
        print_json({name: asdict(share) for name, share in shares.items()})
    elif not quiet:
        samples = next(iter(shares.values())).samples
        head = ["loss", "acts on", "lowers label by", "step changes class", "changes a right one"]
        rows = [
            [name, percent(a.active), difference(a.lowered, "number"), percent(a.flipped), percent(a.flipped_correct)]
            for name, a in shares.items()
        ]
        print_table(f"{count(samples)} samples; steps of size {step:g} on the logits", head, rows)


def _texts(row: torch.Tensor) -> list[str]:
    return [number(value) for value in row.tolist()]


def _smoothing_texts(lens: Lens) -> list[str]:
    pairs = zip(lens.smoothing[0].tolist(), lens.active[0].tolist(), strict=True)
    return [number(value) if active else ABSENT for value, active in pairs]
