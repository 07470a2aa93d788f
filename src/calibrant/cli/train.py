"""``calibrant train`` and ``calibrant predict``: a recipe becomes a run folder, a run folder becomes predictions."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from calibrant.base.files import check_output
from calibrant.base.numbers import quantity
from calibrant.cli.console import label, print_json, print_line, print_table, progress_bar, remark, say, show_progress
from calibrant.cli.options import (
    Accelerator,
    Data,
    Json,
    Quiet,
    RecipeFile,
    SpreadsheetSafe,
    TrustCode,
    invocation,
    trusts_models,
    trusts_run,
)
from calibrant.cli.schema import versioned

#: The metrics that are printed for every set; the mean IoU for masks only.
SHOWN = ("accuracy", "mean_iou", "nll", "ece", "aurc", "mean_confidence")


def train_command(
    recipe: RecipeFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the run.")] = Path("runs/run"),
    data: Data = None,
    loss: Annotated[
        str | None, typer.Option(help="Use another loss, with its default parameters, on the labels as they are.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Train this method of the recipe: a row of its tables.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value: loss.margin=6; data.hold_out= removes it (repeat for more)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Override the seed.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    devices: Annotated[int, typer.Option(help="Processes or GPUs per machine.", min=1, max=1024)] = 1,
    nodes: Annotated[int, typer.Option(help="Machines.", min=1, max=1024)] = 1,
    accelerator: Accelerator = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the recipe, the model's size and a time estimate, and stop.")
    ] = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model by a recipe; the folder gets recipe, log, checkpoints, predictions and their numbers.

    After an interruption, even by kill -9, --resume continues the run; the result is the same as without it.
    """
    from calibrant.base.files import json_value
    from calibrant.training import load, load_method, train  # here, because it imports PyTorch

    overrides = [] if loss is None else [f"loss.name={json.dumps(loss)}"]
    if loss not in (None, "soft"):  # as in a comparison: adaptive targets would make it another method
        overrides.append("targets.name=hard")
    overrides += [*(settings or []), *([f"seed={seed}"] if seed is not None else [])]
    if method is not None and loss is not None:
        raise ValueError("a method of the recipe has its own loss: give --method or --loss, not both")
    plan = (
        load(recipe, overrides, fresh_loss=loss is not None)
        if method is None
        else load_method(recipe, method, overrides)
    )
    trusted = trusts_models([plan.model], trust_code)
    if dry_run:
        _dry_run(plan, data, trusted, as_json)
        return
    with TrainingBar(quiet) as bar:
        try:
            result = train(
                plan, output, data=data, resume=resume, devices=devices, nodes=nodes, accelerator=accelerator,
                trust_code=trusted, event_log=bar,
            )  # fmt: skip
        except KeyboardInterrupt:
            again = [*invocation, *(["--resume"] if not resume else [])]
            remark(f"interrupted; continue with: {shlex.join(['calibrant', *again])}", quiet or not bar.is_first)
            raise
    if not bar.is_first:
        return
    if as_json:
        print_json(json_value(result))
    elif not quiet:
        metrics = [k for k in SHOWN if k in result["sets"]["test"]]
        rows = [(name, *(_text(k, values[k]) for k in metrics)) for name, values in result["sets"].items()]
        print_table(plan.title or str(recipe), ("set", *metrics), rows)
    remark(f"predictions in {output}; audit them with: calibrant audit {output / 'test.npz'}", quiet)


def predict_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="The folder of a run; probabilities of several are averaged.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of predictions: .npz, .parquet, ...")],
    data: Data = None,
    split: Annotated[str | None, typer.Option(help="The split; the recipe's test split if left out.")] = None,
    layout: Annotated[str | None, typer.Option(help="Layout of --data, if it is not the data set trained on.")] = None,
    checkpoint: Annotated[str, typer.Option(help="kept (the model that was evaluated), last or best.")] = "kept",
    dropout_passes: Annotated[
        int | None, typer.Option(help="MC dropout: the number of passes to average, with dropout.", min=1, max=10_000)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the passes with dropout.")] = 0,
    whole_maps: Annotated[
        bool, typer.Option("--whole-maps", help="For masks: keep every pixel, even if the recipe keeps some per image.")
    ] = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    accelerator: Accelerator = "auto",
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict a split of a data set with a trained model, or with the mean probability of several: a deep ensemble."""
    from calibrant.predictions import format_of
    from calibrant.training import RunFolder, predict_mean, predict_run

    folders = [data] if data is not None else [RunFolder(run).recipe().data.path or None for run in runs]
    check_output(output, inputs=[*runs, *folders])
    format_of(output)
    trusted = all(trusts_run(run, trust_code) for run in runs)
    options: dict[str, Any] = {
        "data": data, "split": split, "layout": layout, "checkpoint": _checkpoint(checkpoint),
        "accelerator": accelerator, "trust_code": trusted, "whole_maps": whole_maps,
    }  # fmt: skip
    with show_progress(quiet) as progress:
        if len(runs) == 1 and dropout_passes is None:
            predictions = predict_run(runs[0], progress=progress, **options)
        else:
            predictions = predict_mean(runs, dropout_passes=dropout_passes, seed=seed, progress=progress, **options)
    predictions.save(output, spreadsheet_safe=spreadsheet_safe)
    if as_json:
        print_json(versioned("predict", {"samples": len(predictions), "file": str(output)}))
    remark(f"{len(predictions)} samples in {output}", quiet)


def _checkpoint(text: str) -> Any:
    if text not in ("kept", "last", "best"):
        raise ValueError(f"--checkpoint takes kept, last or best, got {text!r}")
    return text


class TrainingBar:
    """Shows the events of a run on standard error: a bar with loss, rate and time left, and a line per epoch."""

    def __init__(self, quiet: bool, metrics: Sequence[str] = SHOWN):
        self.quiet, self.metrics = quiet, metrics
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        )
        self.bar = progress_bar(*columns, quiet=quiet)
        self.task = self.bar.add_task("training", total=None, numbers="")
        self.last = 0.0
        self.is_first = False  # of several processes only the first receives events and prints
        self.numbers: dict[str, float] = {}  # the terms of the loss come with some steps, and are shown until the next

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: str, numbers: Mapping[str, Any]) -> None:
        """Show an event."""
        self.is_first = True
        if event == "start":
            self.bar.start()
            self.bar.update(self.task, total=numbers["steps"], completed=numbers["step"])
            for name in numbers["left_out"]:
                remark(f"{name} is left out: give its folder with --set data.also.{name}.path=DIR", self.quiet)
            if numbers["step"]:
                remark(f"continuing from step {numbers['step']} of {numbers['steps']}", self.quiet)
        elif event == "step" and time.monotonic() - self.last > 0.2:
            self.last = time.monotonic()
            self.numbers |= {name: value for name, value in numbers.items() if name not in ("step", "epoch")}
            text = " ".join(f"{name} {value:.4g}" for name, value in self.numbers.items())
            epoch = f"epoch {numbers['epoch'] + 1}"
            self.bar.update(self.task, completed=numbers["step"], numbers=text, description=epoch)
        elif event == "predicting":
            self.bar.update(self.task, description=label(f"predicting {numbers['set']}"), numbers="")
        elif event == "epoch":
            texts = " ".join(f"{k} {_text(k, numbers[f'val_{k}'])}" for k in self.metrics if f"val_{k}" in numbers)
            remark(f"epoch {numbers['epoch']}: {texts}" if texts else f"epoch {numbers['epoch']} done", self.quiet)
        elif event == "finished already":
            remark("this run is already finished; nothing was computed again", self.quiet)


def _text(metric: str, value: float) -> str:
    from calibrant.metrics import describe  # here, because it imports NumPy

    return quantity(value, describe(metric).unit)


def _dry_run(recipe: Any, data: str | None, trust_code: bool, as_json: bool) -> None:
    from calibrant.training import estimate

    cost = estimate(recipe, data, trust_code=trust_code)
    if as_json:
        print_json({"recipe": recipe.model_dump(mode="json"), **cost})
        return
    plain = recipe.model_dump(mode="json", exclude={"expected"})
    print_table(recipe.title or "recipe", ("setting", "value"), list(_flatten(plain)), numbers=False)
    print_line()
    say(
        f"{cost['parameters']} parameters, {cost['samples']} training samples, {cost['steps']} steps of "
        f"{cost['seconds_per_step']:.3g} s: about {cost['seconds'] / 60:.1f} minutes here, without validation."
    )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Any:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        elif value not in (None, "", (), [], {}):
            yield f"{prefix}{name}", str(value)
