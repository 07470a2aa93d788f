"""The registry: every network by a short name, with where it comes from and how large it was published to be."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn


@dataclass(frozen=True)
class Architecture:
    """The facts of one registered network.

    Attributes:
        name: short name, as in `build`.
        builder: makes the network; its first parameter is ``num_classes``, its keywords are the options.
        task: "classification", "segmentation", "detection" or "text".
        summary: one line.
        source: paper or code that it follows.
        input_size: shape of one usual input.
        num_classes: how many classes it has when none are asked for; `published` is counted with them.
        published: the number of parameters that the source gives, None where it gives none.
        published_in: where that number stands, and what it counts.
        stems: the stems to choose from, the default first; empty where there is no choice.
        torchvision: whether torchvision has weights under this name.
    """

    name: str
    builder: Callable[..., nn.Module]
    task: str
    summary: str
    source: str
    input_size: tuple[int, ...]
    num_classes: int
    published: int | None
    published_in: str
    stems: tuple[str, ...]
    torchvision: bool

    def defaults(self) -> dict[str, Any]:
        """The options and their defaults; the stem is not among them."""
        parameters = list(inspect.signature(self.builder).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.name != "stem"}


ARCHITECTURES: dict[str, Architecture] = {}
_B = TypeVar("_B", bound=Callable[..., nn.Module])


def register(
    name: str,
    *,
    summary: str,
    source: str,
    input_size: tuple[int, ...],
    num_classes: int,
    task: str = "classification",
    published: int | None = None,
    published_in: str = "",
    stems: tuple[str, ...] = (),
    torchvision: bool = False,
) -> Callable[[_B], _B]:
    """Decorator: enters a builder into the registry under a short name."""

    def enter(builder: _B) -> _B:
        chooses = "stem" in inspect.signature(builder).parameters
        if name in ARCHITECTURES or chooses != bool(stems) or (published is None) != (not published_in):
            raise TypeError(f"cannot register {name!r}: taken, or its stems or its published figure are half given")
        ARCHITECTURES[name] = Architecture(
            name, builder, task, summary, source, input_size, num_classes, published, published_in, stems, torchvision
        )
        return builder

    return enter


def names(task: str | None = None) -> tuple[str, ...]:
    """Short names of all networks, or of those for one task.

    Args:
        task: "classification", "segmentation", "detection" or "text".

    Example:
        >>> from calibrant.models import names
        >>> names("text")
        ('gpcn',)
    """
    tasks = dict.fromkeys(one.task for one in ARCHITECTURES.values())
    if task is not None and task not in tasks:
        raise ValueError(f"unknown task {task!r}: expected one of {', '.join(tasks)}")
    return tuple(name for name, one in ARCHITECTURES.items() if task in (None, one.task))


def describe(name: str) -> Architecture:
    """The facts of the network with this short name: source, input size, options, published size.

    Example:
        >>> from calibrant.models import describe
        >>> describe("resnet50").published
        25557032
    """
    if name not in ARCHITECTURES:
        raise ValueError(
            f"unknown model {name!r}{nearest(name, ARCHITECTURES)}: "
            "expected a name of names(), 'timm/NAME' or 'package.module:factory'"
        )
    return ARCHITECTURES[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """The names most like one that is not known, for a message."""
    near = difflib.get_close_matches(str(name).lower(), list(known), 3, cutoff=0.4)
    return f" (nearest: {', '.join(near)})" if near else ""
