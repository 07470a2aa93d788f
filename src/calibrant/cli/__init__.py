"""The command line: parse, call, print. One file per command, except for those that belong together.

An error in the input is one line and exit code 2; an error in Calibrant is one line, exit code 70 and a file with the
traceback.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from calibrant import __version__
from calibrant.cli import console, options

#: Exit code of an error in Calibrant itself (EX_SOFTWARE of sysexits.h).
BUG = 70

#: Largest number of characters of an error: names and values in it may have any length.
LONGEST = 1000

#: Name, then module and function (or a typer app), then the first line of its help.
COMMANDS = {
    "apply": (
        "apply:apply_command",
        "Predict the class and the confidence of every sample, and whether to answer or abstain.",
    ),
    "audit": (
        "audit:audit_command",
        "Tell whether a model's confidence can be trusted, with an interval on every number, and write a report.",
    ),
    "cam": (
        "cam:cam_command",
        "Draw where the networks of runs look: class activation maps, and the share of them on the objects.",
    ),
    "check": (
        "check:check_command",
        "Check a model against requirements such as 'ece <= 0.03': each passes, fails or is undecided.",
    ),
    "compare": (
        "compare:compare_command",
        "Train every method with every seed, and compare them; run it again to continue.",
    ),
    "data": ("data:app", "Data sets: look at one, or write its masked variants."),
    "demo": ("demo:demo", "Train one overconfident network, repair it, let it abstain with a promise, export it."),
    "detect": (
        "detect:detect_command",
        "Train a detector on every backbone with every seed, and compare them; run it again to continue.",
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
    "holdout": (
        "holdout:holdout_command",
        "Divide labelled predictions at random into two files: one to fit a policy on, one to judge it by.",
    ),
    "lens": (
        "lens:lens_command",
        "Show what label each loss really trains towards: effective label q', smoothing f and indicator C.",
    ),
    "maps": (
        "maps:maps_command",
        "Draw one image by several methods: predictions, confidence, the uncertainty of wrong pixels, reliability.",
    ),
    "methods": (
        "methods:methods",
        "List the training losses, or show one with its parameters and what raising each of them does.",
    ),
    "monitor": (
        "monitor:monitor_command",
        "Watch a deployed policy: whether its promise is kept, and whether new samples are like those of the fit.",
    ),
    "paper": ("paper:paper_command", "Make a table or figure of one of the papers, or list them all."),
    "predict": ("train:predict_command", "Predict a split of a data set with a trained model."),
    "recipes": ("recipes:recipes_command", "List the recipes that come with Calibrant, or print one."),
    "schema": ("schema:schema_command", "Print the JSON schema of the document that a command prints with --json."),
    "train": (
        "train:train_command",
        "Train a model by a recipe; the folder gets recipe, log, checkpoints, predictions and their numbers.",
    ),
}

#: The options of some Python arguments.
_OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "target_risk",
        "target_coverage",
        "by_class",
        "set_free_ranks",
        "class_names",
        "ignore_index",
        "input_shape",
    )
}
_FILES = (".npz", ".npy", ".parquet", ".safetensors", ".csv", ".tsv", ".jsonl", ".ndjson")
#: Other tools' names of our commands.
_OTHER_NAMES = {
    "calibrate": "fit", "repair": "fit", "policy": "fit", "report": "audit", "evaluate": "audit", "eval": "audit",
    "test": "audit", "plot": "audit", "decide": "apply", "run": "train", "losses": "methods",
    "onnx": "export", "inspect": "data", "split": "holdout", "divide": "holdout",
}  # fmt: skip


class LazyCommands(TyperGroup):
    """A group whose commands are imported when used; its own help imports none of them."""

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


app = typer.Typer(
    name="calibrant",
    cls=LazyCommands,
    help="Classifiers whose confidence can be trusted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"calibrant {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a run failed, 2 bad input, 70 a bug of ours, 130 interrupted.

    The code is that of the command also where its output is closed, or its reader has left, as ``head`` does.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options.invocation[:] = [str(word) for word in words]
    # NumPy's matrices are small here, and its idle threads would spin for longer than a command takes. Large arrays
    # are processed by threads of our own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that half-written files are removed
    console.protect_streams()
    console.show_warnings()
    try:
        code = app(args=words or ["--help"], prog_name="calibrant", standalone_mode=False)
        sys.stdout.flush()  # here a full disk is still an error like others
    except (typer.Abort, KeyboardInterrupt):
        _leave(_fail("interrupted", 130))
    except Exception as error:
        sentence = _input_error(error)
        if sentence is not None:
            sentence = in_options(sentence, options.invocation, sorted(COMMANDS))
        _leave(_fail(sentence) if sentence is not None else _fail(_bug_report(error), BUG))
    sys.exit(code if isinstance(code, int) else 0)


def _input_error(error: Exception) -> str | None:
    """The message of an error in the input, or None for any other error."""
    # Usage errors are recognised by their method; their class differs between typer versions.
    if hasattr(error, "format_message"):
        return str(error.format_message())
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory ({error})" if str(error) else "not enough memory"
    return str(error) if isinstance(error, ValueError | OSError) else None


def in_options(message: str, words: Sequence[str], commands: Sequence[str]) -> str:
    """A message about wrong input, in terms of the command line.

    Args:
        message: one sentence.
        words: of the command line, the command first.
        commands: names of all commands.

    Example:
        >>> from calibrant.cli import in_options
        >>> in_options("target_risk must be a number between 0 and 1, got 5.0", ["fit", "x.npz"], ["fit"])
        '--target-risk must be a number between 0 and 1, got 5.0 (5% is 0.05)'
    """
    before, mark, python = message.partition(" (in Python ")
    for name, option in _OPTIONS.items():
        before = re.sub(rf"(?<![-\w]){name}\b", option, before)
    before = re.sub(r"^((?:\S+: )?)(confidence|level|sets|alpha|share) must (be|lie)", r"\1--\2 must \3", before)
    before = before.replace('kind="segmentation"', "--segmentation").replace(
        "columns maps our names", "--column maps our names"
    )
    if "got 'kind'" in before:
        before = before.partition("; did you mean")[0]
    hint = _hint(before, words, commands)
    return (before.removesuffix(".") if hint.startswith(";") else before) + hint + mark + python


def _hint(message: str, words: Sequence[str], commands: Sequence[str]) -> str:
    """What to do, if the message does not say it."""
    command, files = words[0] if words else "", [word for word in words[1:] if word.lower().endswith(_FILES)]
    options = "--(target-risk|target-coverage|confidence|level|sets|alpha|share)"
    share = re.search(rf"({options}\b|the share of .+) must .* got (\d+(?:\.\d+)?)$", message)
    if share and 1 < float(share[3]) < 100:
        return f" ({float(share[3]):g}% is {float(share[3]) / 100:g})"
    if "unable to parse" in message and any(re.fullmatch(r"\d+(\.\d+)?%", word) for word in words):
        return " (5% is written 0.05)"
    if message.startswith("No such command"):
        from calibrant.base.checks import did_you_mean  # here, because it imports NumPy

        name = _OTHER_NAMES.get(command)
        guess = f"; did you mean {name!r}?" if name else did_you_mean(command, commands)
        return guess or f" Known are {', '.join(commands)}."
    if command == "compare" and files:
        advice = f"calibrant audit {' '.join(files)} compares files of predictions"
        return f"; compare trains methods by a recipe: {advice}"
    if "not a policy" in message and command == "apply" and words[1:2] == files[:1]:
        return "; the policy comes first: calibrant apply policy.json predictions"
    if "not a policy" in message:
        return "; a policy is the .json file that calibrant fit writes"
    if "unexpected extra argument" in message and command in ("fit", "apply") and files:
        return "; one file of predictions is read, with its labels in it"
    return "; images take --segmentation" if "got 'kind'" in message else ""


def _bug_report(error: Exception) -> str:
    """Write the traceback of an internal error to a file, and say where it is."""
    text = "".join(traceback.format_exception(error))
    about = f"calibrant {__version__}, Python {platform.python_version()}, {platform.platform()}"
    reason = f"{type(error).__name__}: {error}".removesuffix(": ")
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="calibrant-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"{about}\n{options.command_line()}\n\n{text}")
    except OSError:
        print(console.escaped(text, keep="\n"), file=sys.stderr)
        return f"this is a bug in Calibrant ({reason}); please report it with the lines above"
    return f"this is a bug in Calibrant ({reason}); please report it with {file.name}, which has the traceback"


def _fail(message: str, code: int = 2) -> int:
    text = console.one_line(message)
    print(f"calibrant: {text if len(text) <= LONGEST else text[:LONGEST] + '...'}", file=sys.stderr)
    return code


def _leave(code: int) -> NoReturn:
    """Exit; if several processes train together, leave none of them waiting."""
    processes = sys.modules.get("calibrant.training.distributed")  # not imported unless something was trained
    if processes is not None:
        processes.leave(code)
    sys.exit(code)
