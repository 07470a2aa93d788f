"""The layouts of data sets on disk that can be read: one reader per file in `calibrant.data.readers`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from calibrant.data.dataset import Dataset
from calibrant.data.findings import OnError
from calibrant.data.sources import folders_in

Reader = TypeVar("Reader", bound=Callable[..., Dataset])

#: How far below the given folder a layout is looked for: archives bring their own top folders.
DEPTH = 2


@dataclass(frozen=True)
class Layout:
    """One way in which a data set lies on disk.

    Attributes:
        name: What the command line calls it.
        summary: One line: what is where.
        splits: The splits that a folder has (none: it is not this layout).
        read: ``read(root, split, *, on_error="raise", **options) -> Dataset``.
        rank: Layouts are tried in rising rank; general ones, such as a folder of images, come last.
    """

    name: str
    summary: str
    splits: Callable[[Path], tuple[str, ...]]
    read: Callable[..., Dataset]
    rank: int = 0


_LAYOUTS: dict[str, Layout] = {}


def layout(
    name: str, *, summary: str, splits: Callable[[Path], tuple[str, ...]], rank: int = 0
) -> Callable[[Reader], Reader]:
    """Register a reader under the name of its layout."""

    def register(read: Reader) -> Reader:
        _LAYOUTS[name] = Layout(name, summary, splits, read, rank)
        return read

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


def recognise(path: str | Path) -> tuple[Layout, Path]:
    """The layout of a folder, a file or an embedded set, and where in the folder the layout begins."""
    path = Path(path)
    if not path.exists() and not any(kind.splits(path) for kind in layouts().values()):
        raise ValueError(f"{path}: no such file or folder.")
    # Two levels down, for the folders that archives bring; a specific layout below goes before a general one here.
    roots = [path]
    level = [path]
    for _ in range(DEPTH):
        level = [f / name for f in level if f.is_dir() for name in folders_in(f)[:20]]
        roots += level
    found = [
        (kind.rank, i, kind, root) for i, root in enumerate(roots) for kind in layouts().values() if kind.splits(root)
    ]
    if not found:
        raise ValueError(f"{path}: no known layout of a data set; known are {', '.join(layouts())}.")
    _, _, kind, root = min(found, key=lambda f: f[:2])
    return kind, root


def read(
    path: str | Path,
    split: str | None = None,
    *,
    layout: str | None = None,
    on_error: OnError = "raise",
    **options: Any,
) -> Dataset:
    """Read a data set from disk: its columns now, its inputs when they are asked for.

    Args:
        path: The data folder, a file for layouts that are one file, or the name of an embedded set (``"scenes"``).
        split: Which part; may be left out if there is only one.
        layout: Its name (`layouts` lists them); recognised if left out.
        on_error: ``"raise"`` stops at the first broken sample with an error that names its file; ``"skip"`` leaves such
            samples out, and counts and lists them in ``dataset.report``.
        options: As the layout's reader takes them.

    Example:
        >>> data = read("digits", "test")
        >>> data.name, len(data)
        ('digits', 450)
    """
    if layout is None:
        kind, root = recognise(path)
    elif layout in layouts():
        kind, root = layouts()[layout], Path(path)
        if not kind.splits(root):
            raise ValueError(f"{path}: not a data set in the layout {layout}: {kind.summary}.")
    else:
        raise ValueError(f"no layout {layout!r}; known are {', '.join(layouts())}.")
    splits = kind.splits(root)
    if split is None and len(splits) == 1:
        split = splits[0]
    if split not in splits:
        raise ValueError(f"{path}: split {split!r} was asked for, and {kind.name} has {', '.join(splits)}.")
    return kind.read(root, split, on_error=on_error, **options)
