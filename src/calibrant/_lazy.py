"""Packages whose names are loaded when they are first used, so that nobody waits for what is not needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from calibrant._extras import need


def loader(
    package: str, homes: Mapping[str, str], extras: Mapping[str, tuple[str, str]] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: public names, each with the module of the package that defines it; a module is its own home.
        extras: of homes that need one: the extra of pyproject.toml, and the package that must be there.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if extras and homes[name] in extras:
            need(f"{package}.{name}", *extras[homes[name]])
        home = importlib.import_module(f"{package}.{homes[name]}")
        value = home if homes[name] == name else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
