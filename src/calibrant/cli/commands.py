"""The commands by name: where each is, and what the list of commands says of it. Modules are loaded when called."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

#: Name, then module and function (or a typer app), then the first line of its help.
COMMANDS = {
    "apply": ("apply:apply_command", "Say for every sample which class, how sure, and whether to answer at all."),
    "audit": (
        "audit:audit_command",
        "Tell whether a model's confidence can be trusted, with an interval on every number, and write a report.",
    ),
    "compare": (
        "compare:compare_command",
        "Train every method with every seed, and compare them; run it again to go on.",
    ),
    "data": ("data:app", "Data sets: look at one, or write its masked variants."),
    "demo": (
        "demo:demo",
        "Train six ways, audit, repair, abstain at 5% risk, export; ends with a table and a page to open.",
    ),
    "export": (
        "export:export_command",
        "Write a model and its policy as one ONNX graph: label, calibrated confidence, accept, probabilities.",
    ),
    "fit": (
        "fit:fit_command",
        "Repair a model and decide when it may answer: fit a calibrator, a score and a threshold on held-out "
        "predictions.",
    ),
    "lens": (
        "lens:lens_command",
        "Show what label each loss really trains towards: effective label q', smoothing f and indicator C.",
    ),
    "methods": (
        "methods:methods",
        "List the training losses, or show one with its parameters and what raising each of them does.",
    ),
    "predict": ("train:predict_command", "Predict a split of a data set with a trained model."),
    "train": (
        "train:train_command",
        "Train a model by a recipe; the folder gets recipe, log, checkpoints, predictions and their numbers.",
    ),
}


class LazyCommands(TyperGroup):
    """A group whose commands are imported when they are asked for; its own help imports none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        return sorted({*COMMANDS, *self.commands})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = load(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the group's help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx) if name in COMMANDS])


def load(name: str) -> Any:
    """Import a command."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    target = getattr(importlib.import_module(f"calibrant.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        command = typer.main.get_command(target)
    else:
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name)(target)
        command = typer.main.get_command(alone)
    command.name = name
    return command
