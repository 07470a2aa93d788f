"""Whose code building a model would run, said without running any of it.

The networks of `names`, and timm's own by their plain names, are code that was installed on purpose. A
``package.module:factory`` may be anything, and some options of timm's factory lead it to files and addresses of
somebody's choice. Both are fine in a program that its author writes, and need a yes where a recipe or a run folder
names them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

TIMM = "timm/"

# Any other name makes timm read a folder or download: hf-hub:, local-dir:.
_TIMM_NAME = re.compile(r"[A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")
_TIMM_PLACES = ("model_name", "checkpoint_path", "cache_dir")


class UntrustedCodeError(ValueError):
    """A recipe or a run folder names code that nobody has said to trust."""


def foreign_code(name: str, options: Mapping[str, Any] | None = None) -> str | None:
    """What building a model would run or read that is neither Calibrant's, torchvision's nor timm's own.

    Nothing is imported to find out.

    Args:
        name: as `build` takes it.
        options: as `build` takes them.

    Returns:
        The predicate of a sentence, or None if there is nothing of the kind.

    Example:
        >>> from calibrant.models.trust import foreign_code
        >>> foreign_code("resnet18") is None
        True
        >>> print(foreign_code("no_such_package.nets:make"))
        imports the module no_such_package.nets (which is not installed here) and calls its make
    """
    if name.startswith(TIMM):
        return _foreign_to_timm(name.removeprefix(TIMM), options or {})
    if ":" not in name:
        return None
    module, _, function = name.partition(":")
    if not module or not function:  # nothing can be imported by such a name
        return None
    return f"imports the module {module} ({_origin(module)}) and calls its {function}"


def require_trust(name: str, options: Mapping[str, Any], trust_code: bool) -> None:
    """Raise unless building this model runs no foreign code, or that is trusted."""
    code = None if trust_code else foreign_code(name, options)
    if code is not None:
        raise UntrustedCodeError(
            f"model {name!r} is none of Calibrant's, torchvision's or timm's: building it {code}; if you trust that "
            "code, allow it with --trust-code (in Python: trust_code=True)"
        )


def _foreign_to_timm(name: str, options: Mapping[str, Any]) -> str | None:
    if not _TIMM_NAME.fullmatch(name):
        return f"makes timm fetch a model from {name!r}"
    places = [option for option in options if option in _TIMM_PLACES or option.startswith("pretrained_")]
    return f"makes timm read what its option {places[0]!r} names" if places else None


def _origin(module: str) -> str:
    """Where a module would come from, by its top package alone: to look further would import it."""
    top = module.partition(".")[0]
    spec: ModuleSpec | None = getattr(sys.modules.get(top), "__spec__", None)
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = spec or PathFinder.find_spec(top, [os.getcwd(), *sys.path]) or importlib.util.find_spec(top)
    if spec is None:
        return "which is not installed here"
    folders = list(spec.submodule_search_locations or ())
    return f"from {folders[0] if folders else spec.origin or 'Python itself'}"
