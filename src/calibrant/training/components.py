"""Components that a recipe names with their parameters: steps of a view, mixing, blanking, colouring, losses.

Parameters come from a file: their names, types and sizes are checked against the component's signature before it is
called.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from calibrant._validation import did_you_mean, short
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
#: Largest training set for a loss with a memory.
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
    """A component by name, with whatever parameters it takes: ``{name = "acls", margin = 6}``."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})

    def build(self, what: str, table: Mapping[str, Any]) -> Any:
        """Build the component that a table has under this name."""
        return build(what, self.name, table, self.parameters)


def build(what: str, name: str, table: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    """Build a component of a table by its name.

    Example:
        >>> build("step", "pad", STEPS, {"pixels": 2})
        Pad(pixels=2)
        >>> build("step", "pad", STEPS, {"pixels": "2"})
        Traceback (most recent call last):
        ...
        ValueError: step 'pad': pixels must be a whole number, got '2'
    """
    if name not in table:
        raise ValueError(f"unknown {what} {short(name)}; known are {', '.join(table)}{did_you_mean(name, table)}")
    return make(f"{what} {name!r}", table[name], parameters)


def make(what: str, factory: Any, parameters: Mapping[str, Any]) -> Any:
    """Check the parameters of a factory, and call it."""
    signature, hints = inspect.signature(factory).parameters, _hints(factory)
    _check_names(what, parameters, list(signature))
    for name, parameter in signature.items():
        if parameter.default is parameter.empty and name not in parameters:
            raise ValueError(f"{what} needs {name}: {words_of(hints.get(name, Any))}")
    _check_types(what, parameters, hints, LARGEST_SIDE)
    return factory(**parameters)


def make_loss(name: str, parameters: Mapping[str, Any], ignore_index: int | None = None) -> Loss:
    """Build a loss; ``ignore_index`` is the data set's, used if the parameters have none."""
    if name not in names():
        raise ValueError(f"unknown loss {short(name)}; known are {', '.join(names())}{did_you_mean(name, names())}")
    what, method = f"loss {name!r}", describe(name)
    _check_names(what, parameters, [*method.defaults(), "weight", "ignore_index", "reduction"])
    _check_types(what, parameters, _hints(Loss) | _hints(method.loss), MOST_SAMPLES)
    if parameters.get("reduction") == "none":
        raise ValueError(f"{what}: reduction must be 'mean' or 'sum' in training, got 'none'")
    common = {} if ignore_index is None else {"ignore_index": ignore_index}
    try:
        return get(name, **(common | dict(parameters)))
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def make_steps(steps: Iterable[dict[str, Any]]) -> list[Step]:
    """The steps of a view: ``[{step = "resize", size = 256}, {step = "centre_crop", size = 224}]``.

    Example:
        >>> make_steps([{"step": "resize", "size": 40}, {"step": "flip"}])
        [Resize(size=40, side='shorter'), RandomFlip(probability=0.5)]
    """
    views: list[Step] = []
    for settings in steps:
        parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
        name = parameters.pop("step", "")
        if not isinstance(name, str):
            raise ValueError(f"a step is named by text, got {short(settings['step'])}")
        views.append(build("step", name, STEPS, parameters))
    return views


def make_colouring(parameters: Mapping[str, float]) -> ColourJitter | None:
    """The colour jitter, or None without parameters."""
    jitter: ColourJitter | None = make("colouring", ColourJitter, parameters) if parameters else None
    return jitter


def words_of(hint: Any) -> str:
    """An annotation in words, for messages."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return "two whole numbers" if int in get_args(hint) else "two numbers"
    members = [member for member in _members(hint) if member is not type(None)]
    return " or ".join(map(words_of, members)) if len(members) > 1 else _KINDS.get(members[0], "a value")


def _check_names(what: str, parameters: Iterable[str], allowed: list[str]) -> None:
    for name in parameters:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise ValueError(f"{what} has no {short(name)}; it has {', '.join(allowed) or 'no parameters'}{hint}")


def _check_types(what: str, parameters: Mapping[str, Any], hints: Mapping[str, Any], largest: int) -> None:
    """Refuse a parameter that does not have the type of its annotation, and whole numbers beyond ``largest``."""
    for name, value in parameters.items():
        hint = hints.get(name, Any)
        values = value if isinstance(value, list | tuple) else [value]
        try:
            _adapter(hint).validate_python(tuple(value) if isinstance(value, list) else value)
        except ValidationError:
            raise ValueError(f"{what}: {name} must be {words_of(hint)}, got {short(value)}") from None
        is_whole = any(int in (member, *get_args(member)) for member in _members(hint))
        if is_whole and (large := [v for v in values if isinstance(v, int) and abs(v) > largest]):
            raise ValueError(f"{what}: {name} must be at most {largest}, got {short(large[0])}")


def _adapter(hint: Any) -> TypeAdapter[Any]:
    """A strict validator of an annotation: whole numbers count as numbers, booleans do not, a list is a tensor."""
    members: Any = tuple(tuple[float, ...] if member is Tensor else member for member in _members(hint))
    union: Any = Union[members]  # noqa: UP007
    return TypeAdapter(union, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _hints(factory: Any) -> dict[str, Any]:
    return typing.get_type_hints(factory.__init__)
