"""Imports that wait until a name is used, and packages that only an extra of Calibrant installs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

_TITLES = {"torch": "PyTorch", "ray": "Ray", "sklearn": "scikit-learn", "pytorch_grad_cam": "grad-cam"}
_NEEDED = {"needs_torch": "torch", "needs_sklearn": "sklearn"}


class MissingExtraError(ImportError, ValueError):
    """A package that an extra of Calibrant installs is missing."""


def need(feature: str, extra: str, *packages: str) -> None:
    """Raise `MissingExtraError` unless packages are installed, given by the names they are imported by.

    None of them is imported. The message says that the ``feature`` needs them, and that the ``extra`` installs them.
    """
    titles = [_TITLES.get(package, package) for package in packages if not _is_installed(package)]
    if titles:
        raise MissingExtraError(f"{feature} needs {', '.join(titles)}: pip install 'calibrant[{extra}]'")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except Exception:  # whatever is wrong with it, importing it will tell
        return True


def lazy_names(
    package: str, extras: Mapping[str, tuple[str, str]] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names are imported when they are first used.

    The names are those that the package's ``__init__.py`` imports under ``if TYPE_CHECKING:``, so that type checkers
    and Python read the same list.

    Args:
        package: its ``__name__``.
        extras: by the beginning of a module's name, the extra of pyproject.toml and the package that it needs.
    """
    homes = _typed_imports(package)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        for module, (extra, needed) in (extras or {}).items():
            if homes[name].startswith(module):
                need(f"{package}.{name}", extra, needed)
        value = (
            importlib.import_module(f"{package}.{name}")
            if homes[name] == package
            else getattr(importlib.import_module(homes[name]), name)
        )
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names


def _typed_imports(package: str) -> dict[str, str]:
    """The names that a package imports under ``if TYPE_CHECKING:``, each with the module that has it."""
    source = sys.modules[package].__spec__.loader.get_source(package)  # type: ignore[union-attr]
    return {
        alias.name: str(node.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def __getattr__(name: str) -> bool:
    """``from calibrant.base.extras import needs_torch`` raises `MissingExtraError` where PyTorch is not installed.

    ``needs_sklearn`` does so for scikit-learn.
    """
    if name not in _NEEDED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need("this part of Calibrant", "train", _NEEDED[name])
    return True
