"""A bar on standard error that any long work of Calibrant can report its progress to."""

from __future__ import annotations

import threading
from typing import Any, Self

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from calibrant.cli.console import label, progress_bar, remark


class ProgressBar:
    """Shows what it is called with, as `calibrant._progress.Progress`; it appears when the work has taken a second.

    Args:
        quiet: Show nothing.
        lines: Where there is no terminal, print a line for every whole unit of work that is done.
    """

    def __init__(self, quiet: bool, *, lines: bool = False):
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[count]}"),
                   TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
        self._bar = progress_bar(*columns, quiet=quiet, speed_estimate_period=600.0)
        self._task: Any = None
        # By a timer, so that the bar also appears when a single item takes long.
        self._timer = threading.Timer(1.0, self._bar.start)
        self._timer.daemon = True
        self._has_lines = lines and not quiet and self._bar.disable
        self._printed = ("", 0)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._bar.stop()

    def __call__(self, what: str, done: float, total: float | None) -> None:
        """Show how far the work is."""
        count = f"{done:.0f}" if total is None else f"{done:.0f} of {total:.0f}"
        if self._has_lines and (what.partition(":")[0], int(done)) != self._printed:
            self._printed = what.partition(":")[0], int(done)
            remark(what if total is None else f"{count}: {what}")
        if self._task is None:
            self._task = self._bar.add_task(label(what), total=total, count=count)
        self._bar.update(self._task, description=label(what), completed=done, total=total, count=count)
