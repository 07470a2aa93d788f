"""Things that a recipe names, with parameters: views, mixing, blanking, losses.

Parameters come from a file, so that they are compared with the signature of what takes them, by name, type and size,
before it is called.
"""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from calibrant.data import (
    RICAP,
    CentreCrop,
    ColourJitter,
    CutMix,
    Cutout,
    Mixup,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Step,
)
from calibrant.losses import Loss, describe, get, names

#: Pixels along a side of an image, and of its padding.
LARGEST_SIDE = 8192
#: The number of samples that a loss with a memory may be made for.
MOST_SAMPLES = 10**8

STEPS: dict[str, Any] = {
    "resize": Resize,
    "pad": Pad,
    "centre_crop": CentreCrop,
    "random_crop": RandomCrop,
    "random_resized_crop": RandomResizedCrop,
    "flip": RandomFlip,
}
MIXING: dict[str, Any] = {"cutmix": CutMix, "ricap": RICAP, "mixup": Mixup}
BLANKING: dict[str, Any] = {"cutout": Cutout, "erasing": RandomErasing}

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Tensor: "a list of numbers"}


class Named(BaseModel):
    """A thing by name, with whatever parameters it takes: ``{name = "acls", margin = 6}``."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})

    def built(self, table: dict[str, Any], what: str) -> Any:
        """What a table has under this name, made with these parameters."""
        if self.name not in table:
            hint = nearest(self.name, table)
            raise ValueError(f"unknown {what} {shorten(self.name)}; known are {', '.join(table)}{hint}")
        return make(f"{what} {self.name!r}", table[self.name], self.parameters)


def make(what: str, factory: Any, parameters: Mapping[str, Any], largest: int = LARGEST_SIDE) -> Any:
    """What a class makes of parameters, after a look at their names and types.

    Example:
        >>> make("step 'pad'", Pad, {"pixels": 2})
        Pad(pixels=2)
        >>> make("step 'pad'", Pad, {"pixels": "2"})
        Traceback (most recent call last):
        ...
        ValueError: step 'pad': pixels must be a whole number, got '2'
    """
    signature = inspect.signature(factory)
    check_names(what, parameters, list(signature.parameters))
    for name, parameter in signature.parameters.items():
        if parameter.default is parameter.empty and name not in parameters:
            raise ValueError(f"{what} needs {name}: {words_of(_hints(factory).get(name, Any))}")
    check_types(what, parameters, _hints(factory), largest)
    return factory(**parameters)


def make_loss(name: str, parameters: Mapping[str, Any], ignore_index: int | None = None) -> Loss:
    """A loss; ``ignore_index`` is the data set's, where the parameters have none."""
    if name not in names():
        raise ValueError(f"unknown loss {shorten(name)}{nearest(name, names())}; known are {', '.join(names())}")
    what, method = f"loss {name!r}", describe(name)
    check_names(what, parameters, [*method.defaults(), "weight", "ignore_index", "reduction"])
    check_types(what, parameters, _hints(Loss) | _hints(method.loss), MOST_SAMPLES)
    if parameters.get("reduction") == "none":
        raise ValueError(f"{what}: reduction must be 'mean' or 'sum' in training, got 'none'")
    common = {} if ignore_index is None else {"ignore_index": ignore_index}
    try:
        return get(name, **(common | dict(parameters)))
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def chain(steps: Iterable[dict[str, Any]]) -> list[Step]:
    """Views from their settings: ``[{step = "resize", size = 256}, {step = "centre_crop", size = 224}]``.

    Example:
        >>> chain([{"step": "resize", "size": 40}, {"step": "flip"}])
        [Resize(size=40, side='shorter'), RandomFlip(probability=0.5)]
    """
    views: list[Step] = []
    for settings in steps:
        name = settings.get("step", "")
        if not isinstance(name, str):
            raise ValueError(f"a step is named by text, got {shorten(name)}")
        parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items() if key != "step"}
        if name not in STEPS:
            raise ValueError(f"unknown step {shorten(name)}; known are {', '.join(STEPS)}{nearest(name, STEPS)}")
        views.append(make(f"step {name!r}", STEPS[name], parameters))
    return views


def check_names(what: str, parameters: Iterable[str], allowed: list[str]) -> None:
    """Refuse a parameter that is not among those allowed."""
    for name in parameters:
        if name not in allowed:
            hint = nearest(name, allowed)
            raise ValueError(f"{what} has no {shorten(name)}{hint}; it has {', '.join(allowed) or 'no parameters'}")


def check_types(what: str, parameters: Mapping[str, Any], hints: Mapping[str, Any], largest: int) -> None:
    """Refuse a parameter of another type than its annotation, or a whole number beyond ``largest``."""
    for name, value in parameters.items():
        if name not in hints:
            continue
        if not _is(hints[name], value):
            raise ValueError(f"{what}: {name} must be {words_of(hints[name])}, got {shorten(value)}")
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, int) and abs(number) > largest and _takes_whole(hints[name]):
                raise ValueError(f"{what}: {name} must be at most {largest}, got {shorten(number)}")


def words_of(hint: Any) -> str:
    """What an annotation asks for, in words."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return "two whole numbers" if int in get_args(hint) else "two numbers"
    members = [member for member in _members(hint) if member is not type(None)]
    if len(members) > 1:
        return " or ".join(words_of(member) for member in members)
    return _KINDS.get(members[0], "a value")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is most like this one, if any is."""
    close = difflib.get_close_matches(name[:100], list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shorten(value: Any, most: int = 80) -> str:
    """A value for a message, however long it is."""
    words = repr(value)
    return words if len(words) <= most else f"{words[:most]}..."


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _takes_whole(hint: Any) -> bool:
    return any(int in (member, *get_args(member)) for member in _members(hint))


def _is(hint: Any, value: Any) -> bool:
    """Whether a plain value is what an annotation says; a whole number is a number, and true is none."""
    members = _members(hint)
    if len(members) > 1:
        return any(_is(member, value) for member in members)
    if get_origin(hint) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        return isinstance(value, list | tuple) and len(value) == len(parts) and all(map(_is, parts, value))
    if hint is Tensor:
        return isinstance(value, list | tuple) and all(_is(float, number) for number in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return value is None if hint is type(None) else not isinstance(hint, type) or isinstance(value, hint)


def _hints(factory: Any) -> dict[str, Any]:
    return typing.get_type_hints(factory.__init__)


def make_colouring(parameters: Mapping[str, float]) -> ColourJitter | None:
    """What changes the colours of images, or None if nothing is asked for."""
    jitter: ColourJitter | None = make("colouring", ColourJitter, parameters) if parameters else None
    return jitter
