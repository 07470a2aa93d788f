"""The optional parts of an installation: where one is missing, one sentence says what to install."""

from __future__ import annotations

import importlib.util

_NAMES = {"torch": "PyTorch", "ray": "Ray"}


class MissingExtraError(ImportError, ValueError):
    """A package is not installed that an extra of Calibrant brings along."""


def need(what: str, extra: str, *packages: str) -> None:
    """Raise unless the packages are installed; none of them is imported.

    Args:
        what: the part that cannot do without, as the sentence begins.
        extra: of pyproject.toml.
        packages: their modules' names.
    """
    missing = [_NAMES.get(package, package) for package in packages if not _is_there(package)]
    if missing:
        raise MissingExtraError(f"{what} needs {', '.join(missing)}: pip install 'calibrant[{extra}]'")


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except Exception:  # whatever is wrong with it, importing it will tell
        return True
