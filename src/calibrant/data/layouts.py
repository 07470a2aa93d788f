"""The layouts of data sets on disk: their registry, recognition and reading.

Readers are in `calibrant.data.readers`. Their options, from recipes and the command line, are checked against the
reader's annotations before it is called; an error names the layout, the option, and what it takes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from calibrant.base.checks import did_you_mean, listing, printable
from calibrant.base.files import kind_of
from calibrant.data.dataset import Dataset, OnError
from calibrant.data.files import UnreadableError, folders_in, short_repr

#: Levels below the given folder that are searched for a layout: archives have their own top folders.
DEPTH = 2


@dataclass(frozen=True)
class Layout:
    """One way in which a data set is stored on disk; its reader is ``read(root, split, *, on_error, **options)``."""

    name: str  # on the command line
    summary: str  # the files and folders of the layout, in one line
    splits: Callable[[Path], tuple[str, ...]]  # those that a folder has; none if it is not this layout
    read: Callable[..., Dataset]
    rank: int = 0  # layouts are tried in rising rank; general ones, such as a folder of images, come last
    absent: Mapping[str, str] = field(default_factory=dict)  # by split, what a folder may lack; for messages

    def open(self, root: Path, split: str, on_error: OnError, options: dict[str, Any]) -> Dataset:
        """Read a split."""
        reserved = [name for name in ("root", "split", "on_error") if name in options]
        if reserved:
            raise ValueError(f"{self.name} has no option {reserved[0]!r}: it is an argument of its own")
        return self.read(root, split, on_error=on_error, **options)


_LAYOUTS: dict[str, Layout] = {}


def layout(
    name: str,
    *,
    summary: str,
    splits: Callable[[Path], tuple[str, ...]],
    rank: int = 0,
    absent: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Dataset]], Callable[..., Dataset]]:
    """Register a reader under the name of its layout; its options are checked whenever it is called."""

    def register(read: Callable[..., Dataset]) -> Callable[..., Dataset]:
        @functools.wraps(read)
        def read_checked(root: str | Path, split: str, *, on_error: OnError = "raise", **options: Any) -> Dataset:
            return read(root, split, on_error=on_error, **check_options(name, read, options))

        _LAYOUTS[name] = Layout(name, summary, splits, read_checked, rank, absent or {})
        return read_checked

    return register


def layouts() -> dict[str, Layout]:
    """All layouts by name, in the order in which they are tried.

    Example:
        >>> "tiny-imagenet" in layouts()
        True
    """
    from calibrant.data import readers

    for module in sorted(pkgutil.iter_modules(readers.__path__), key=lambda m: m.name):
        if not module.name.startswith("_"):
            importlib.import_module(f"{readers.__name__}.{module.name}")
    return dict(sorted(_LAYOUTS.items(), key=lambda item: (item[1].rank, item[0])))


def recognise(path: str | Path, layout: str | None = None) -> tuple[Layout, Path]:
    """The layout of a folder, a file or an embedded set, and the folder in which it begins.

    Two levels below the path are searched too, as archives have their own top folders. With the name of a ``layout``,
    only its folder is searched for.
    """
    path, kinds = Path(path), layouts()
    if layout is not None and layout not in kinds:
        raise ValueError(f"no layout {layout!r}; known are {', '.join(kinds)}{did_you_mean(layout, kinds)}")
    candidates = list(kinds.values()) if layout is None else [kinds[layout]]
    if not path.exists() and not any(kind.splits(path) for kind in candidates):
        raise ValueError(f"{path}: no such file or folder")
    if path.exists() and not (path.is_dir() or path.is_file()):
        raise ValueError(f"{path}: expected a folder or a file, got {kind_of(path.stat().st_mode)}")
    roots = level = [path]
    for _ in range(DEPTH):
        level = [folder / name for folder in level if folder.is_dir() for name in _folders(folder)[:20]]
        roots = roots + level
    matches = [(kind, root) for root in roots for kind in candidates if kind.splits(root)]
    if not matches:
        _raise_if_broken(path, candidates)
        if layout is not None:
            raise ValueError(f"{path}: not a data set in the layout {layout}: {kinds[layout].summary}")
        raise ValueError(f"{path}: no known layout of a data set; known are {', '.join(kinds)}")
    # A specific layout further down takes precedence over a general one here.
    best, root = min(matches, key=lambda match: match[0].rank)
    rivals = [r for k, r in matches if k.rank == best.rank and not (r.is_relative_to(root) or root.is_relative_to(r))]
    if rivals:
        names = [str(folder) for folder in dict.fromkeys([root, *rivals])]
        raise ValueError(f"{path}: there are several data sets here; name one of {', '.join(names[:10])}")
    return best, root


def _folders(folder: Path) -> list[str]:
    """The folders in a folder; none if it may not be read, such as lost+found."""
    try:
        return folders_in(folder)
    except PermissionError:
        return []


def _raise_if_broken(path: Path, candidates: list[Layout]) -> None:
    """Raise if a layout would take a file that is broken."""
    for kind in candidates:
        splits = getattr(kind.splits, "__wrapped__", kind.splits)
        try:
            splits(path)
        except UnreadableError:
            raise
        except (OSError, ValueError):
            continue


def read(
    path: str | Path,
    split: str | None = None,
    *,
    layout: str | None = None,
    on_error: OnError = "raise",
    **options: Any,
) -> Dataset:
    """Read a data set from disk: its columns now, its inputs on demand.

    Args:
        path: The data folder, a file for layouts that are one file, or the name of an embedded set (``"scenes"``).
        split: Name of the split; may be left out if there is only one.
        layout: One of `layouts`; recognised if left out.
        on_error: ``"raise"`` stops at the first broken sample with an error that names its file; ``"skip"`` leaves such
            samples out, and counts and lists them in ``dataset.report``.
        options: Options of the layout's reader.

    Example:
        >>> data = read("digits", "test")
        >>> data.name, len(data)
        ('digits', 450)
    """
    kind, root = recognise(path, layout)
    splits = kind.splits(root)
    if split is None and len(splits) == 1:
        split = splits[0]
    if split not in splits:
        hint = f"; {kind.absent[split]}" if split is not None and split in kind.absent else ""
        if list(splits) == ["all"]:
            hint = "; in a recipe, use data.train = 'all', and cut a test set from it with data.test_share = 0.2"
        raise ValueError(f"{path}: split {split!r} was asked for, and {kind.name} has {listing(splits)}{hint}")
    return kind.open(root, split, on_error, options)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


def check_options(layout: str, reader: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, checked against the keyword-only parameters of the reader and their annotations.

    Example:
        >>> def reader(root, split, *, cap: int | None = None): ...
        >>> check_options("toy", reader, {"cap": 3})
        {'cap': 3}
        >>> check_options("toy", reader, {"cap": "x"})
        Traceback (most recent call last):
        ...
        ValueError: toy: the option cap must be a whole number, got 'x'
    """
    hints = typing.get_type_hints(reader)
    parameters = inspect.signature(reader).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "on_error"]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_any else [name for name in options if name not in names]
    if unknown:
        raise ValueError(f"{layout} has no option {printable(unknown[0], 60)!r}; it has {', '.join(names) or 'none'}")
    return {
        name: _check_option(f"{layout}: the option {name}", hints.get(name, Any), value)
        for name, value in options.items()
    }


def _check_option(subject: str, hint: Any, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    try:
        TypeAdapter(hint, config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{subject} must be {_describe_hint(hint)}, got {short_repr(value)}") from error
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{subject} must be below 2**63, got {short_repr(value)}")
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError(f"{subject} must be a finite number, got {value}")
    return value


def _describe_hint(hint: Any) -> str:
    """An annotation in words; None, which stands for a missing option, is not mentioned."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_describe_hint(kind) for kind in arguments if kind is not types.NoneType))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is not None and issubclass(origin, Mapping):
        return "an object of texts by text"
    if origin is not None and issubclass(origin, Collection):
        return "a list of texts" if arguments[0] is str else f"a list with some of {_describe_hint(arguments[0])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))
