"""What the commands share: options, loss specifications, tables, progress."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from calibrant.losses import Loss, get

T = TypeVar("T")

#: Words up to this length are not wrapped in a table.
SHORT = 32

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
    """``8,4,1,0`` as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{what} must be numbers separated by commas, got {text!r}") from None


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> None:
    """A table on standard output; columns of numbers are right-aligned.

    Where the terminal is too narrow, words are wrapped, and columns of numbers go on below the others.
    """
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(title, style="bold", highlight=False, markup=False)
    lines = [tuple(row) for row in rows]
    for columns in _columns_that_fit([head, *lines], console.width) if numbers else [range(len(head))]:
        table = Table(header_style="dim", box=None, pad_edge=False)
        for i in columns:
            short = max(cell_len(row[i]) for row in [head, *lines]) <= SHORT
            table.add_column(head[i], justify="right" if numbers and i else "left", no_wrap=numbers or short)
        for row in lines:
            table.add_row(*(Text(row[i]) for i in columns))  # as it is: a name in brackets is no markup
        console.print(table)


def _columns_that_fit(rows: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """Parts of a table, each with the first column, that are no wider than the terminal as far as that can be."""
    widths = [max(cell_len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    part = [0]
    for i in range(1, len(widths)):
        if len(part) > 1 and sum(widths[j] for j in (*part, i)) > width + 2:
            yield part
            part = [0]
        part.append(i)
    yield part


def say(text: str, *, indent: int = 0) -> None:
    """A paragraph on standard output, wrapped to the terminal."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    print(textwrap.fill(text, width, initial_indent=" " * max(0, indent - 2), subsequent_indent=" " * indent))


def remark(message: str, quiet: bool) -> None:
    """A line on standard error."""
    if not quiet:
        print(message, file=sys.stderr)


def progress(
    items: Iterable[T], total: int, what: str, quiet: bool, *, size: Callable[[T], int] = lambda _: 1
) -> Iterator[T]:
    """Pass items through, with a bar on standard error once it has taken a second; ``size`` is what one counts for."""
    bar = Progress(console=Console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty())
    task, done = bar.add_task(what, total=total or None), 0
    # By a timer, so that the bar also appears when a single item takes long.
    soon = threading.Timer(1.0, bar.start)
    soon.daemon = True
    soon.start()
    try:
        for item in items:
            yield item
            done += size(item)
            bar.update(task, completed=done)
    finally:
        soon.cancel()
        soon.join()
        bar.stop()


def batch_progress(items: Iterable[Any], total: int, what: str, quiet: bool) -> Iterator[Any]:
    """Progress over batches of ``total`` samples in all, or over single things if that is 0."""
    return progress(items, total, what, quiet, size=lambda item: len(item) if total else 1)
