"""The registry: every loss by a short name, with its source and the effect of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from calibrant.losses.base import Loss

#: Parameters that every loss has, and their defaults.
COMMON = {"weight": None, "ignore_index": -100, "reduction": "mean"}


@dataclass(frozen=True)
class Method:
    """The facts of one registered method.

    Attributes:
        name: short name, as in `get`.
        title: name in words.
        loss: the class.
        paper: key in references.bib.
        equation: the equation in the paper.
        summary: one line.
        use: when to use it.
        avoid: when not to.
        hyper: for each hyper-parameter, what raising it does.
        search: values of the hyper-parameters that the papers try; empty where they give none.
        soft: whether soft targets make sense.
        per_sample: whether the value of a sample depends on that sample alone.
        cost: how the work grows with the number of classes C and of samples N.
    """

    name: str
    title: str
    loss: type[Loss]
    paper: str
    equation: str
    summary: str
    use: str
    avoid: str
    hyper: Mapping[str, str] = field(default_factory=dict)
    search: Mapping[str, Sequence[float]] = field(default_factory=dict)
    soft: bool = True
    per_sample: bool = True
    cost: str = "N C"

    def defaults(self) -> dict[str, Any]:
        """The method's own parameters and their defaults (those every loss has are left out)."""
        parameters = inspect.signature(self.loss).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in COMMON}


METHODS: dict[str, Method] = {}
_L = TypeVar("_L", bound="type[Loss]")


def register(name: str, title: str, **facts: Any) -> Callable[[_L], _L]:
    """Class decorator: registers a loss under a short name, with the other facts of `Method` by keyword."""

    def enter(loss: _L) -> _L:
        method = Method(name, title, loss, **facts)
        unexplained = set(method.defaults()) - set(method.hyper)
        if name in METHODS or unexplained:
            raise TypeError(f"cannot register {loss.__name__} as {name!r}: taken, or no direction for {unexplained}")
        METHODS[name] = method
        loss.method = method
        return loss

    return enter


def names() -> tuple[str, ...]:
    """Short names of all losses, in the order of the docs.

    Example:
        >>> from calibrant.losses import names
        >>> names()[:4]
        ('ce', 'ls', 'focal', 'flsd')
    """
    return tuple(METHODS)


def describe(name: str) -> Method:
    """The facts of the method with this short name: paper, equation, directions of its hyper-parameters.

    Example:
        >>> from calibrant.losses import describe
        >>> describe("ls").hyper["alpha"]
        'larger: flatter targets, lower confidence'
    """
    if name not in METHODS:
        raise ValueError(f"unknown loss {name!r}: expected one of {', '.join(METHODS)}")
    return METHODS[name]


def get(name: str, **parameters: Any) -> Loss:
    """Build a loss by its short name.

    Args:
        name: one of `names`.
        **parameters: the method's own parameters and those of `Loss`.

    Returns:
        The loss module.

    Example:
        >>> from calibrant.losses import get
        >>> get("acls", margin=6.0)
        ACLS(margin=6.0)
    """
    method = describe(name)
    allowed = [*method.defaults(), *COMMON]
    for parameter in parameters:
        if parameter not in allowed:
            raise ValueError(f"loss {name!r} has no parameter {parameter!r}: expected one of {', '.join(allowed)}")
    return method.loss(**parameters)
