"""What the commands share: options, and how losses and numbers are written on the command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calibrant.losses import Loss
    from calibrant.predictions import Predictions
    from calibrant.selective import Policy

#: The words after ``calibrant`` of the running command, for reports that say how they were made.
invocation: list[str] = []

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no tables, remarks or progress.")]

#: How files of predictions are to be read, for every command that reads some; see `how_to_open`.
Column = Annotated[
    list[str] | None,
    typer.Option(
        help="What a column of yours holds, as labels=truth or probabilities=cat,dog,bird or logits='z_*' "
        "(repeat for more).",
        show_default=False,
    ),
]
ClassNames = Annotated[
    str | None, typer.Option(help="Names of the classes in order, separated by commas.", show_default=False)
]
Segmentation = Annotated[bool, typer.Option("--segmentation", help="Each sample is an image of labels.")]
IgnoreIndex = Annotated[
    int | None, typer.Option(help="Label that counts nowhere, 255 for example.", show_default=False)
]


def how_to_open(
    column: list[str] | None, class_names: str | None, segmentation: bool, ignore_index: int | None
) -> dict[str, Any]:
    """The options above as arguments of `Predictions.open`."""
    return {
        "columns": _columns(column or []) or None,
        "class_names": None if class_names is None else class_names.split(","),
        "kind": "segmentation" if segmentation else None,
        "ignore_index": ignore_index,
    }


def open_for_policy(policy: Policy | None, files: str, **opening: Any) -> Predictions:
    """Open predictions that a policy is to decide about; classes without names have those of the policy.

    Where the files name their classes, columns are matched with the policy's by name.
    """
    from calibrant.predictions import Predictions  # needs NumPy

    if policy is None or policy.class_names is None or opening.get("class_names") is not None:
        return Predictions.open(files, **opening)
    try:
        return Predictions.open(files, **opening | {"class_names": list(policy.class_names)})
    except ValueError as error:
        if "class_names" in str(error) or "class names" in str(error):
            raise ValueError(f"{error} (the class names are those of the policy)") from None
        raise


def _columns(given: list[str]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for item in given:
        ours, equals, theirs = item.partition("=")
        if not equals or not theirs:
            raise ValueError(f"--column takes ours=yours, for example labels=truth, got {item!r}")
        if ours in columns:
            raise ValueError(f"--column {ours}=... is given twice")
        columns[ours] = theirs.split(",") if "," in theirs else theirs
    return columns


def parse_losses(specification: str) -> dict[str, Loss]:
    """``ls,acls:margin=6:variant=paper`` as losses by their specification.

    Example:
        >>> from calibrant.cli.common import parse_losses
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


def parse_methods(specification: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """``ls,acls:margin=6`` as names and settings by their specification.

    Example:
        >>> parse_methods("ce,acls:margin=6")
        {'ce': ('ce', {}), 'acls:margin=6': ('acls', {'margin': 6})}
    """
    found = {}
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
        if item in found:
            raise ValueError(f"loss {item!r} is given twice")
        found[item] = name, parameters
    if not found:
        raise ValueError("no losses given: expected names separated by commas, for example ls,mbls,acls:margin=6")
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_numbers(text: str, what: str) -> list[float]:
    """``8,4,1,0`` as numbers, which are finite."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{what} must be numbers separated by commas, got {text[:60]!r}") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{what} must be finite numbers, got {text[:60]!r}")
    return numbers
