"""The progress of long work: one protocol for audits, fits, training, sweeps and files, which only reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Called as work goes on, from one thread.

    Args:
        stage: as a person would read it: "auditing", "epoch 3 of 10".
        done: how much of it is done.
        total: how much there is, or None if nobody knows.
    """

    def __call__(self, stage: str, done: float, total: float | None, /) -> None:
        """Report the progress."""


def silent(stage: str, done: float, total: float | None) -> None:
    """Report nothing."""


def track(
    items: Iterable[T], stage: str, total: int | None, progress: Progress, *, size: Callable[[T], int] = lambda _: 1
) -> Iterator[T]:
    """Yield the items and report the progress after each; ``size`` is what an item counts for.

    Example:
        >>> list(track("ab", "letters", 2, lambda stage, done, total: print(stage, done, total)))
        letters 0 2
        letters 1 2
        letters 2 2
        ['a', 'b']
    """
    done = 0
    progress(stage, done, total)
    for item in items:
        yield item
        done += size(item)
        progress(stage, done, total)
