"""Models by the name of a factory, ``package.module:function``: found, and called.

Whoever calls these has decided to run that code; see `calibrant.models.trust`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from calibrant import _torchvision

#: Exit code of a process that was asked to end by SIGTERM, which the command line turns into a SystemExit.
TERMINATED = 143


def find_factory(name: str) -> Any:
    """What ``package.module:name`` names; the current folder is looked in too."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"a model is named as package.module:factory, got {name!r}")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        with sentences(f"model {name!r}: cannot import {module}"):
            _torchvision.ensure()  # the factory may be torchvision's, or import it
            value: Any = importlib.import_module(module)
    finally:
        with contextlib.suppress(ValueError):  # what was imported may have changed the path
            sys.path.remove(here)
    with sentences(f"model {name!r}: {module} has no {path!r}"):
        for part in path.split("."):
            value = getattr(value, part)
    return value


def call_factory(name: str, factory: Any, options: Mapping[str, Any]) -> nn.Module:
    """The model that a factory gives for these keywords; ``name`` names it in messages."""
    if not callable(factory):
        kind = type(factory).__name__
        raise ValueError(f"model {name!r}: a function or class that gives a module is needed, got {kind}")
    with sentences(f"model {name!r}: the call failed"):
        model = factory(**options)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model {name!r}: it must give a torch.nn.Module, got {type(model).__name__}")
    return model


@contextlib.contextmanager
def sentences(what: str) -> Iterator[None]:
    """Whatever goes wrong in other people's code becomes a ValueError that begins with ``what``.

    Also a SystemExit: code that ends the process, perhaps with "success", has not done what it was asked for.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code == TERMINATED:
            raise
        unknown = (
            re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
        )
        reason = f"it has no option {unknown[1]!r}" if unknown else one_line(error)
        raise ValueError(f"{what} ({f'{type(error).__name__}: {reason}'.removesuffix(': ')})") from None


def one_line(error: BaseException, most: int = 400) -> str:
    """Another library's message, for use in a sentence."""
    words = " ".join(str(error).split())
    return words if len(words) <= most else f"{words[:most]}..."
