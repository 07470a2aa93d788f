"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant.base.files import check_output
from calibrant.cli.console import one_line

if TYPE_CHECKING:
    from calibrant.losses import Loss
    from calibrant.policy import Policy
    from calibrant.predictions import PassEngine, Predictions

#: The arguments of the running command, for reports that show how they were made.
invocation: list[str] = []


def command_line() -> str:
    """The running command as one line."""
    return shlex.join(["calibrant", *invocation])


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no tables, remarks or progress.")]

# How files of predictions are read; see `parse_opening`.
Column = Annotated[
    list[str] | None,
    typer.Option(
        help="Which column holds what: labels=truth, probabilities=cat,dog,bird or logits='z_*' (repeat for more); of "
        "several files, B:labels=truth is for B or B.csv. ids= says that the column called ids does not hold ids, "
        "weight= that the column called weight does not hold importance weights."
    ),
]
ClassNames = Annotated[str | None, typer.Option(help="Names of the classes in order, separated by commas.")]
Positive = Annotated[
    str | None,
    typer.Option(help="Which of two classes is the positive one: one column of probabilities is P(positive)."),
]
Segmentation = Annotated[bool, typer.Option("--segmentation", help="Each sample is an image with one label per pixel.")]
IgnoreIndex = Annotated[int | None, typer.Option(help="Label to ignore, for example 255; else the file's, or -100.")]
Split = Annotated[
    str | None,
    typer.Option(help="Which rows to read, of a file with a column split (or --column split=NAME): test, for example."),
]
Repeats = Annotated[
    str | None, typer.Option(help="What to do with rows that repeat an id: first keeps one row of each.")
]

SpreadsheetSafe = Annotated[
    bool,
    typer.Option(
        "--spreadsheet-safe",
        help="In .csv, put a ' before text that a spreadsheet would take for a formula (=, +, -, @).",
    ),
]

#: Which reading of logit normalisation is tried.
Centre = Annotated[
    bool | None,
    typer.Option(
        "--centre/--no-centre",
        help="Normalise centred logits, or logits as they are (SC Eq. 17); without either both are tried, and the "
        "better is taken.",
    ),
]

# Where runs are executed, and predictions are read.
Engine = Annotated[str, typer.Option(help="local or ray.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster, or auto; else one starts here.")]
Accelerator = Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")]

#: Names of methods that others are tested against: training on labels as they are.
REFERENCES = ("ce", "hard")

# Recipes and their data.
RecipeFile = Annotated[Path, typer.Argument(help="A recipe: a TOML file, or a name that calibrant recipes lists.")]
Data = Annotated[str | None, typer.Option("--data", help="Folder of the data, if not the one in the recipe.")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import and run the model's code even if it is not from Calibrant, torchvision or timm."
    ),
]


@contextlib.contextmanager
def pass_engine(engine: str, address: str | None) -> Iterator[PassEngine]:
    """What goes through predictions by ``--engine`` and ``--address``; a cluster stays connected meanwhile."""
    from calibrant.predictions import LOCAL, OnRay  # needs NumPy

    if engine == "ray":
        from calibrant.base.cluster import connect  # here, because Ray is an extra

        with connect("the engine ray", address):
            yield OnRay(address)
        return
    if engine != "local":
        raise ValueError(f"unknown engine {engine!r}; known are local and ray")
    if address is not None:
        raise ValueError("an address is for the engine ray; the engine local reads in this process")
    yield LOCAL


def check_kind(output: Path, kind: str, *suffixes: str, inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse an ``--output`` with another suffix, one that cannot be written, or one of the command's inputs."""
    if output.suffix.lower() not in suffixes:
        raise ValueError(f"--output {output}: {kind} is written as {suffixes[0]}, got {output.suffix!r}")
    check_output(output, inputs=inputs)


def parse_opening(
    column: list[str] | None,
    class_names: str | None,
    positive: str | None,
    segmentation: bool,
    ignore_index: int | None,
    split: str | None = None,
) -> dict[str, Any]:
    """The options above as arguments of `Predictions.open`."""
    return {
        "columns": _columns(column or []) or None,
        "class_names": None if class_names is None else class_names.split(","),
        "positive": positive,
        "kind": "segmentation" if segmentation else None,
        "ignore_index": ignore_index,
        "split": split,
    }


def reading_words(
    column: list[str] | None,
    class_names: str | None,
    positive: str | None,
    segmentation: bool,
    ignore_index: int | None,
) -> list[str]:
    """The same options as arguments of a command line."""
    words = [word for item in column or [] for word in ("--column", item)]
    for name, value in (("--class-names", class_names), ("--positive", positive), ("--ignore-index", ignore_index)):
        words += [] if value is None else [name, str(value)]
    return words + ["--segmentation"] * segmentation


def parse_share(text: str | float) -> float:
    """A share as people write it: 0.05 or 5%; whether it lies between 0 and 1 is checked where it is used.

    Example:
        >>> parse_share("0.05"), parse_share("5%")
        (0.05, 0.05)
    """
    digits = str(text).strip()  # a default is a number already
    try:
        return float(digits.removesuffix("%")) / (100 if digits.endswith("%") else 1)
    except ValueError:
        raise typer.BadParameter(f"expected a share such as 0.05 or 5%, got {digits[:40]!r}") from None


def share_option(description: str) -> Any:
    """An option that takes a share."""
    return typer.Option(parser=parse_share, metavar="<share>", help=description)


def columns_of(file: str, files: list[str], items: list[str] | None) -> list[str]:
    """The options ``--column`` for a file: those for all files, and those that begin with its name or stem."""
    selected = []
    for item in items or []:
        role, equals, source = item.partition("=")
        name, colon, column = role.rpartition(":")
        owners = [path for path in files if name in (path, Path(path).name, Path(path).stem)] if colon else []
        if colon and not owners and not role.startswith("group."):
            raise ValueError(f"--column {item}: no file is called {name}; the files are {', '.join(files)}")
        if len(owners) > 1:
            raise ValueError(f"--column {item}: {name} may be {owners[0]} or {owners[1]}; give the whole path")
        if not owners:
            selected.append(item)
        elif owners[0] == file:
            selected = [*(i for i in selected if not i.startswith(f"{column}=")), f"{column}{equals}{source}"]
    return selected


def open_for_policy(policy: Policy | None, files: str, **opening: Any) -> Predictions:
    """Open predictions, perhaps for a policy; classes without names get those of the policy.

    If the files name their classes, columns are matched with the policy's by name. A split must be one that the files
    know: else all rows would be taken for it.
    """
    from calibrant.predictions import has_split

    predictions = _open_for_policy(policy, files, **opening)
    split = opening.get("split")
    if split is not None and not has_split(predictions):
        raise ValueError(
            f"{files}: nothing says which rows are of the split {split!r}: name the column with --column split=NAME, "
            "or leave out --split"
        )
    return predictions


def _open_for_policy(policy: Policy | None, files: str, **opening: Any) -> Predictions:
    from calibrant.predictions import Predictions  # needs NumPy

    if policy is not None and policy.class_names is not None and opening.get("positive") is None:
        opening["positive"] = policy.positive_name
    if policy is None or policy.class_names is None or opening.get("class_names") is not None:
        return Predictions.open(files, **opening)
    try:
        return Predictions.open(files, **opening | {"class_names": list(policy.class_names)})
    except ValueError as error:
        if "class_names" in str(error) or "class names" in str(error):
            raise ValueError(f"{error} (the class names are those of the policy)") from None
        raise


def _columns(items: list[str]) -> dict[str, Any]:
    from calibrant.predictions import OMITTABLE  # needs NumPy

    columns: dict[str, Any] = {}
    for item in items:
        name, equals, source = item.partition("=")
        if not equals or not (source or name in OMITTABLE):
            raise ValueError(f"--column takes ours=yours, for example labels=truth, got {item!r}")
        if name in columns:
            raise ValueError(f"--column {name}=... is given twice")
        columns[name] = source.split(",") if "," in source else source or None
    return columns


def parse_losses(specification: str) -> dict[str, Loss]:
    """``ls,acls:margin=6:variant=paper`` as losses by their specification.

    Example:
        >>> from calibrant.cli.options import parse_losses
        >>> parse_losses("ce,acls:margin=6")
        {'ce': CrossEntropy(), 'acls:margin=6': ACLS(margin=6.0)}
    """
    from calibrant.losses import get  # needs PyTorch

    losses = {}
    for item, (name, parameters) in parse_methods(specification).items():
        try:
            losses[item] = get(name, **parameters)
        except (TypeError, ValueError) as error:
            raise ValueError(f"loss {item!r}: {error}") from error
    return losses


FailOn = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        help="Exit with 1 if the confidence is poor or a policy's promise is broken (poor), or for the promise alone "
        "(broken).",
    ),
]


def check_fail_on(fail_on: str | None, has_policy: bool) -> None:
    """Refuse invalid values of ``--fail-on``."""
    if fail_on not in (None, "poor", "broken"):
        raise ValueError(f"--fail-on takes poor or broken, got {fail_on[:40]!r}")
    if fail_on == "broken" and not has_policy:
        raise ValueError("--fail-on broken is about the promise of a policy: give --policy")


def parse_methods(specification: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """``ls,acls:margin=6`` as names and settings by their specification.

    Example:
        >>> parse_methods("ce,acls:margin=6")
        {'ce': ('ce', {}), 'acls:margin=6': ('acls', {'margin': 6})}
    """
    methods = {}
    for item in filter(None, (part.strip() for part in specification.split(","))):
        name, *settings = item.split(":")
        parameters: dict[str, Any] = {}
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise ValueError(f"loss {item!r}: expected name:parameter=value, got {setting!r}")
            if key in parameters:
                raise ValueError(f"loss {item!r}: parameter {key!r} is given twice")
            parameters[key] = _value(value)
        if item in methods:
            raise ValueError(f"loss {item!r} is given twice")
        methods[item] = name, parameters
    if not methods:
        raise ValueError("no losses given: expected names separated by commas, for example ls,mbls,acls:margin=6")
    return methods


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_numbers(text: str, option: str) -> list[float]:
    """``8,4,1,0`` as finite numbers."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be numbers separated by commas, got {text[:60]!r}") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{option} must be finite numbers, got {text[:60]!r}")
    return numbers


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse ``--seeds``: a number of seeds, or a list."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise ValueError(f"--seeds takes a number of seeds, or seeds separated by commas, got {text[:80]!r}")
    if "," in text:
        return tuple(numbers)
    from calibrant.experiments import MOST_SEEDS  # here, because it imports PyTorch

    if not 1 <= numbers[0] <= MOST_SEEDS:
        raise ValueError(f"--seeds takes from 1 to {MOST_SEEDS} seeds, got {text[:80]}")
    return tuple(range(numbers[0]))


def trusts_models(models: Iterable[Any], trust_code: bool) -> bool:
    """Whether to run the code that models name: by ``--trust-code``, or by the answer in a terminal."""
    from calibrant.models import foreign_code

    codes = {model.name: foreign_code(model.name, model.options) for model in models}
    questions = [(name, code) for name, code in codes.items() if code is not None]
    if trust_code or not questions or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return trust_code
    for name, code in questions:
        print(f"calibrant: building the model {one_line(name)} {one_line(code)}", file=sys.stderr)
        print("calibrant: do you trust that code, and may it run? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return False
    if sys.argv[1:] == invocation:  # processes started with the same command must not ask again
        sys.argv.append("--trust-code")
    return True


def trusts_run(folder: str | Path, trust_code: bool) -> bool:
    """As `trusts_models`, for the model of a run folder."""
    from calibrant.training import RunFolder

    return trusts_models([RunFolder(folder).recipe().model], trust_code)
