"""Models by the name of a factory, ``package.module:function``: found, and called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from calibrant import _torchvision


def look_up(name: str) -> Any:
    """What ``package.module:name`` names; the current folder is looked in too."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"a model is named as package.module:factory, got {name!r}")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        _torchvision.ensure()  # the factory may be torchvision's, or import it
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise ValueError(f"model {name!r}: cannot import {module} ({_told(error)})") from None
    finally:
        sys.path.remove(here)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"model {name!r}: {module} has no {path!r}")
        found = getattr(found, part)
    return found


def call(name: str, factory: Any, options: Mapping[str, Any]) -> nn.Module:
    """The model that a factory gives for these keywords; ``name`` names it in messages."""
    if not callable(factory):
        kind = type(factory).__name__
        raise ValueError(f"model {name!r}: a function or class that gives a module is needed, got {kind}")
    try:
        made = factory(**options)
    except Exception as error:
        raise ValueError(f"model {name!r}: the call failed ({_told(error)})") from None
    if not isinstance(made, nn.Module):
        raise ValueError(f"model {name!r}: it must give a torch.nn.Module, got {type(made).__name__}")
    return made


def in_one_line(error: BaseException) -> str:
    """Another library's message, for use in a sentence."""
    return " ".join(str(error).split())


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {in_one_line(error)}"
