r"""Printing of the commands: nothing in a file, a name or a message can control the terminal.

Control characters (also of C1 and of text direction) are printed as escapes, so that a class called
``"\x1b[2J"`` is shown and does not clear the screen. Data goes to standard output, remarks and progress to standard
error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from calibrant.base.numbers import count, percent, span
from calibrant.base.progress import Progress, silent

if TYPE_CHECKING:  # imported where something is drawn
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from calibrant.experiments import tables
    from calibrant.promises import SetCounts

#: Words up to this length are not wrapped in a table.
SHORT = 32
#: Classes whose coverage is printed; of more, those where it is lowest.
MOST_CLASSES = 12

# C0 and C1 controls, DEL, marks that turn the direction of text, line and paragraph separators, lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


class _Output(io.FileIO):
    """Standard output or error: where nobody reads it any more, what is written is dropped.

    So ``| head`` does not change what a command does, nor its exit code. That the disk of standard output is full is
    raised once.
    """

    is_lost = False

    def write(self, data: Any) -> int:
        if not self.is_lost:
            try:
                return super().write(data)
            except OSError as error:
                self.is_lost = True
                if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                    raise
        return len(data)


def protect_streams() -> None:
    """Let output that nobody can read be dropped, and names in any script be printed."""
    if sys.stdin is None:  # closed by the caller, as by <&-
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            buffer = io.BufferedWriter(_Output(number, "w", closefd=False))
            by_line = stream.line_buffering or stream.write_through
            options = {"encoding": stream.encoding, "line_buffering": by_line}
            setattr(sys, name, io.TextIOWrapper(buffer, errors="backslashreplace", **options))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def escaped(text: str, *, keep: str = "") -> str:
    r"""Text with its control characters as escapes; those in ``keep`` stay.

    Example:
        >>> escaped("a\x1b[31m red\u202e")
        'a\\x1b[31m red\\u202e'
    """
    return _CONTROL.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Text as one line, with white space collapsed and control characters escaped."""
    return escaped(" ".join(text.split()))


def print_json(value: object) -> None:
    """One JSON document on standard output; JSON escapes control characters by itself."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_line(text: str = "") -> None:
    """A line on standard output."""
    print(escaped(text))


def say(text: str, *, indent: int = 0) -> None:
    """A paragraph on standard output, wrapped to the terminal."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    text = escaped(text, keep="\n\t")
    print(textwrap.fill(text, width, initial_indent=" " * max(0, indent - 2), subsequent_indent=" " * indent))


def remark(message: str, quiet: bool = False) -> None:
    """A line on standard error."""
    if not quiet:
        print(escaped(message), file=sys.stderr)


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> None:
    """A table on standard output; columns of numbers are right-aligned.

    If the terminal is too narrow, words are wrapped, and columns of numbers continue below.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(escaped(title, keep="\n"), style="bold", highlight=False, markup=False)
    lines = [tuple(escaped(cell, keep="\n") for cell in row) for row in [head, *rows]]
    for columns in _columns_that_fit(lines, console.width) if numbers else [range(len(head))]:
        table = Table(header_style="dim", box=None, pad_edge=False)
        for i in columns:
            short = max(cell_len(row[i]) for row in lines) <= SHORT
            heading = Text(lines[0][i])  # plain text: a name in brackets is not markup
            table.add_column(heading, justify="right" if numbers and i else "left", no_wrap=numbers or short)
        for row in lines[1:]:
            table.add_row(*(Text(row[i]) for i in columns))
        console.print(table)


def print_results(pages: Iterable[tables.Table]) -> None:
    """Tables of results, each with its notes below."""
    from calibrant.experiments import tables

    for page in pages:
        print_table(page.title, tables.heads(page), tables.text(page))
        for note in tables.notes(page):
            say(note)
        print_line()


def print_class_coverage(counts: SetCounts, class_names: Sequence[str] | None) -> None:
    """How often prediction sets hold the true class, by class; of many classes, those where it is lowest."""
    present = [k for k, samples in enumerate(counts.class_samples.tolist()) if samples]
    if not counts.labelled or len(present) < 2:
        return
    shares = {k: counts.class_coverage(k) for k in present}
    listed = present if len(present) <= MOST_CLASSES else sorted(present, key=lambda k: shares[k].high)[:MOST_CLASSES]
    rows = [
        [
            str(k) if class_names is None else class_names[k],
            count(counts.class_samples[k]),
            percent(shares[k].value),
            span(shares[k].low, shares[k].high, "share", shares[k].value),
        ]
        for k in listed
    ]
    extent = "" if len(listed) == len(present) else f", the {len(listed)} lowest of {len(present)}"
    print_table(f"\nSets that hold the true class, by class{extent}", ["", "samples", "hold it", "95% interval"], rows)


def _columns_that_fit(rows: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """Parts of a table, each with the first column, that fit the terminal if possible."""
    from rich.cells import cell_len

    widths = [max(cell_len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    part = [0]
    for i in range(1, len(widths)):
        if len(part) > 1 and sum(widths[j] for j in (*part, i)) > width + 2:
            yield part
            part = [0]
        part.append(i)
    yield part


def progress_bar(*columns: ProgressColumn, quiet: bool, **options: Any) -> Bar:
    """A bar on standard error that disappears when it is done; none if standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    return Bar(*columns, console=Console(stderr=True), transient=True, disable=not _is_watched(quiet), **options)


def _is_watched(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


@contextlib.contextmanager
def show_progress(quiet: bool, *, lines: bool = False) -> Iterator[Progress]:
    """A `Progress` that is drawn as a bar on standard error once the work has taken a second.

    The bar disappears when the work is done. If standard error is not a terminal nothing is drawn, except that with
    ``lines`` each finished unit of work is a line.
    """
    if not _is_watched(quiet):
        yield _print_units() if lines and not quiet else silent
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[count]}")
    times = TimeElapsedColumn(), TimeRemainingColumn()
    bar = progress_bar(*columns, *times, quiet=quiet, speed_estimate_period=600.0)
    bar.add_task("", total=None, count="")
    # By a timer, so that the bar also appears if a single step takes long.
    timer = threading.Timer(1.0, bar.start)
    timer.daemon = True
    timer.start()

    def update(what: str, done: float, total: float | None) -> None:
        (task,) = bar.tasks
        if task.total != total or done < task.completed:  # the next stage, with a speed of its own
            bar.remove_task(task.id)
            bar.add_task(label(what), completed=done, total=total, count=_count(done, total))  # type: ignore[arg-type]
        else:
            bar.update(task.id, description=label(what), completed=done, count=_count(done, total))

    try:
        yield update
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


@contextlib.contextmanager
def continuable(quiet: bool) -> Iterator[None]:
    """After Ctrl-C, say how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        remark("interrupted; run the same command again to continue", quiet)
        raise


@contextlib.contextmanager
def acknowledge_interrupts(quiet: bool) -> Iterator[None]:
    """Inside, acknowledge Ctrl-C at once: runs that save their state may take a moment to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        remark("stopping once the runs have saved their state", quiet)
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _count(done: float, total: float | None) -> str:
    return f"{done:.0f}" if total is None else f"{done:.0f} of {total:.0f}"


def _print_units() -> Progress:
    printed = ("", 0)

    def update(what: str, done: float, total: float | None) -> None:
        nonlocal printed
        unit = what.partition(":")[0], int(done)
        if unit != printed:
            printed = unit
            remark(what if total is None else f"{_count(done, total)}: {what}")

    return update


def label(text: str) -> str:
    """Text for a progress bar, with control characters and markup escaped."""
    return escaped(text).replace("[", r"\[")


def show_warnings() -> None:
    """Print the warnings of libraries as remarks: one line, escaped, without a line of source."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        remark(f"note: {one_line(str(message))}")

    warnings.showwarning = show
