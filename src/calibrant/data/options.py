"""Options of readers, checked against the annotations of the reader before it is called.

The command line, recipes and callers of `calibrant.data.read` give options by name; what is wrong with one is said in a
sentence that names the layout, the option, and what it takes.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from calibrant.data.findings import printable

#: Whole numbers beyond this are no counts or seeds.
LARGEST = 2**63

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


def checked_options(layout: str, reader: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, if the reader has them all and each is of the kind that its annotation says.

    Args:
        layout: What the reader's layout is called.
        reader: Its keyword-only parameters, without ``on_error``, are the options.
        options: By name.

    Raises:
        ValueError: There is an option that the reader does not have, or one of another kind.

    Example:
        >>> def reader(root, split, *, cap: int | None = None): ...
        >>> checked_options("toy", reader, {"cap": 3})
        {'cap': 3}
        >>> checked_options("toy", reader, {"cap": "x"})
        Traceback (most recent call last):
        ...
        ValueError: toy: the option cap must be a whole number, got 'x'.
    """
    hints = typing.get_type_hints(reader)
    parameters = inspect.signature(reader).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "on_error"]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if not takes_any and (unknown := [name for name in options if name not in names]):
        raise ValueError(f"{layout} has no option {printable(unknown[0], 60)!r}; it has {', '.join(names) or 'none'}.")
    return {
        name: _checked(f"{layout}: the option {name}", hints.get(name, Any), value) for name, value in options.items()
    }


def _checked(what: str, hint: Any, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    try:
        TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{what} must be {_in_words(hint)}, got {_shown(value)}.") from error
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise ValueError(f"{what} must be below 2**63, got {_shown(value)}.")
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value}.")
    return value


def _in_words(hint: Any) -> str:
    """What an annotation takes, as a sentence says it; None, which leaves an option out, is not spoken of."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_in_words(kind) for kind in arguments if kind is not types.NoneType))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is not None and issubclass(origin, Mapping):
        return "an object of texts by text"
    if origin is not None and issubclass(origin, Collection):
        return "a list of texts" if arguments[0] is str else f"a list with some of {_in_words(arguments[0])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _shown(value: Any) -> str:
    try:
        return printable(repr(value), 80)
    except (ValueError, RecursionError):  # of numbers with thousands of digits, and of lists in lists in lists
        return f"a {type(value).__name__}"
