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

from calibrant import data
from calibrant.base.checks import did_you_mean, short
from calibrant.losses import Loss, describe, get, names

#: Pixels along a side of an image, and of its padding.
LARGEST_SIDE = 8192
#: Largest training set for a loss with a memory.
MOST_SAMPLES = 10**8

STEPS: dict[str, Any] = {
    "resize": data.Resize,
    "pad": data.Pad,
    "centre_crop": data.CentreCrop,
    "random_crop": data.RandomCrop,
    "random_resized_crop": data.RandomResizedCrop,
    "flip": data.RandomFlip,
}
MIXING: dict[str, Any] = {"cutmix": data.CutMix, "ricap": data.RICAP, "mixup": data.Mixup}
BLANKING: dict[str, Any] = {"cutout": data.Cutout, "erasing": data.RandomErasing}

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Tensor: "a list of numbers"}


class Named(BaseModel):
    """A component by name, with whatever parameters it takes: ``{name = "acls", margin = 6}``."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})

    def build(self, kind: str, table: Mapping[str, Any]) -> Any:
        """Build the component of this name from a table; ``kind`` names it in messages."""
        return build(kind, self.name, table, self.parameters)


def build(kind: str, name: str, table: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
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
        raise ValueError(f"unknown {kind} {short(name)}; known are {', '.join(table)}{did_you_mean(name, table)}")
    return make(f"{kind} {name!r}", table[name], parameters)


def make(title: str, factory: Any, parameters: Mapping[str, Any]) -> Any:
    """Check the parameters of a factory, and call it."""
    signature, hints = inspect.signature(factory).parameters, _type_hints(factory)
    _check_names(title, parameters, list(signature))
    for name, parameter in signature.items():
        if parameter.default is parameter.empty and name not in parameters:
            raise ValueError(f"{title} needs {name}: {describe_hint(hints.get(name, Any))}")
    _check_types(title, parameters, hints, LARGEST_SIDE)
    return factory(**parameters)


def make_loss(name: str, parameters: Mapping[str, Any], ignore_index: int | None = None) -> Loss:
    """Build a loss; ``ignore_index`` is the data set's, used if the parameters have none."""
    if name not in names():
        raise ValueError(f"unknown loss {short(name)}; known are {', '.join(names())}{did_you_mean(name, names())}")
    title, method = f"loss {name!r}", describe(name)
    _check_names(title, parameters, [*method.defaults(), "weight", "ignore_index", "reduction"])
    _check_types(title, parameters, _type_hints(Loss) | _type_hints(method.loss), MOST_SAMPLES)
    if parameters.get("reduction") == "none":
        raise ValueError(f"{title}: reduction must be 'mean' or 'sum' in training, got 'none'")
    common = {} if ignore_index is None else {"ignore_index": ignore_index}
    try:
        return get(name, **(common | dict(parameters)))
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from error


def make_steps(steps: Iterable[dict[str, Any]]) -> list[data.Step]:
    """The steps of a view: ``[{step = "resize", size = 256}, {step = "centre_crop", size = 224}]``.

    Example:
        >>> make_steps([{"step": "resize", "size": 40}, {"step": "flip"}])
        [Resize(size=40, side='shorter'), RandomFlip(probability=0.5)]
    """
    views: list[data.Step] = []
    for settings in steps:
        parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
        name = parameters.pop("step", "")
        if not isinstance(name, str):
            raise ValueError(f"a step is named by text, got {short(settings['step'])}")
        views.append(build("step", name, STEPS, parameters))
    return views


def make_colouring(parameters: Mapping[str, float]) -> data.ColourJitter | None:
    """The colour jitter, or None without parameters."""
    jitter: data.ColourJitter | None = make("colouring", data.ColourJitter, parameters) if parameters else None
    return jitter


def describe_hint(hint: Any) -> str:
    """An annotation in words, for messages."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return "two whole numbers" if int in get_args(hint) else "two numbers"
    members = [member for member in _union_members(hint) if member is not type(None)]
    return " or ".join(map(describe_hint, members)) if len(members) > 1 else _KINDS.get(members[0], "a value")


def _check_names(title: str, parameters: Iterable[str], allowed: list[str]) -> None:
    for name in parameters:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise ValueError(f"{title} has no {short(name)}; it has {', '.join(allowed) or 'no parameters'}{hint}")


def _check_types(title: str, parameters: Mapping[str, Any], hints: Mapping[str, Any], largest: int) -> None:
    """Refuse a parameter that does not have the type of its annotation, and whole numbers beyond ``largest``."""
    for name, value in parameters.items():
        hint = hints.get(name, Any)
        values = value if isinstance(value, list | tuple) else [value]
        try:
            _adapter(hint).validate_python(tuple(value) if isinstance(value, list) else value)
        except ValidationError:
            raise ValueError(f"{title}: {name} must be {describe_hint(hint)}, got {short(value)}") from None
        is_whole = any(int in (member, *get_args(member)) for member in _union_members(hint))
        if is_whole and (large := [v for v in values if isinstance(v, int) and abs(v) > largest]):
            raise ValueError(f"{title}: {name} must be at most {largest}, got {short(large[0])}")


def _adapter(hint: Any) -> TypeAdapter[Any]:
    """A strict validator of an annotation: whole numbers count as numbers, booleans do not, a list is a tensor."""
    members: Any = tuple(tuple[float, ...] if member is Tensor else member for member in _union_members(hint))
    union: Any = Union[members]  # noqa: UP007
    return TypeAdapter(union, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def _union_members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _type_hints(factory: Any) -> dict[str, Any]:
    return typing.get_type_hints(factory.__init__)
