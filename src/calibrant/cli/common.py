"""What the commands share: options, loss specifications, tables, progress."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from calibrant.losses import Loss, get

T = TypeVar("T")

#: The words after ``calibrant`` of the running command, for reports that say how they were made.
invocation: list[str] = []

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no tables, remarks or progress.")]


def parse_losses(specification: str) -> dict[str, Loss]:
    """``ls,acls:margin=6:variant=paper`` as losses by their specification.

    Example:
        >>> from calibrant.cli.common import parse_losses
        >>> parse_losses("ce,acls:margin=6")
        {'ce': CrossEntropy(), 'acls:margin=6': ACLS(margin=6.0)}
    """
    losses = {}
    for item in filter(None, (part.strip() for part in specification.split(","))):
        name, *settings = item.split(":")
        parameters = {}
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise ValueError(f"loss {item!r}: expected name:parameter=value, got {setting!r}")
            if key in parameters:
                raise ValueError(f"loss {item!r}: parameter {key!r} is given twice")
            parameters[key] = _value(value)
        try:
            losses[item] = get(name, **parameters)
        except (TypeError, ValueError) as error:
            raise ValueError(f"loss {item!r}: {error}") from error
    if not losses:
        raise ValueError("no losses given: expected names separated by commas, for example ls,mbls,acls:margin=6")
    return losses


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
    """A table on standard output; columns of numbers are right-aligned."""
    table = Table(header_style="dim", box=None, pad_edge=False)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if numbers and i else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(title, style="bold", highlight=False, markup=False)
    console.print(table)


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
